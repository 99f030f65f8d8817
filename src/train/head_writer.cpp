#include "train/head_writer.h"

#include "model/fingerprint.h"
#include "train/gguf_writer.h"

namespace sluice {

namespace {

// What every file of a head says.
Result<GgufWriter> head_file(const ModelFile& model) {
  const HyperParameters& h = model.hparams();
  GgufWriter file;
  SLUICE_TRY(const std::string print, fingerprint(model));
  file.set("general.architecture", "sluice-head");
  file.set("general.name", h.name);
  file.set("sluice-head.version", uint32_t{1});
  file.set("sluice-head.target.name", h.name);
  file.set("sluice-head.target.fingerprint", print);
  file.set("sluice-head.target.block_count", static_cast<uint32_t>(h.n_layers));
  file.set("sluice-head.target.embedding_length", static_cast<uint32_t>(h.d_model));
  file.set("sluice-head.target.vocab_size", static_cast<uint32_t>(h.n_vocab));
  file.set("sluice-head.embedding_length", static_cast<uint32_t>(h.d_model));
  file.set("sluice-head.feed_forward_length", static_cast<uint32_t>(h.d_ff));
  file.set("sluice-head.attention.head_count", static_cast<uint32_t>(h.n_heads));
  file.set("sluice-head.attention.head_count_kv", static_cast<uint32_t>(h.n_kv_heads));
  file.set("sluice-head.attention.key_length", static_cast<uint32_t>(h.head_dim));
  file.set("sluice-head.attention.layer_norm_rms_epsilon", h.norm_epsilon);
  file.set("sluice-head.rope.freq_base", h.rope.base);
  file.set("sluice-head.rope.pairing", h.rope.pairing == RopeParameters::Pairing::kHalves ? "halves" : "adjacent");
  return file;
}

}  // namespace

Status write_head(const Trainee& trainee, const ModelFile& target, const MatrixTypes& types, const std::string& path) {
  SLUICE_TRY(auto file, head_file(target));
  SLUICE_TRY_STATUS(trainee.write(file, types));
  return file.write(path);
}

}  // namespace sluice

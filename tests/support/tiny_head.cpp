#include "support/tiny_head.h"

#include <gguf.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>

#include "base/random.h"
#include "model/fingerprint.h"

namespace sluice::test {

namespace {

template <class T>
std::vector<std::byte> bytes_of(std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

template <class T>
T value_of(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

}  // namespace

GgufDraft::GgufDraft() : metadata_(gguf_init_empty(), &gguf_free) {}

void GgufDraft::set(const std::string& key, const std::string& value) {
  gguf_set_val_str(metadata_.get(), key.c_str(), value.c_str());
}
void GgufDraft::set(const std::string& key, uint32_t value) { gguf_set_val_u32(metadata_.get(), key.c_str(), value); }
void GgufDraft::set(const std::string& key, float value) { gguf_set_val_f32(metadata_.get(), key.c_str(), value); }
void GgufDraft::set(const std::string& key, bool value) { gguf_set_val_bool(metadata_.get(), key.c_str(), value); }
void GgufDraft::set(const std::string& key, const std::vector<int32_t>& values) {
  gguf_set_arr_data(metadata_.get(), key.c_str(), GGUF_TYPE_INT32, values.data(), values.size());
}
void GgufDraft::set(const std::string& key, const std::vector<std::string>& values) {
  std::vector<const char*> texts;
  for (const auto& value : values) texts.push_back(value.c_str());
  gguf_set_arr_str(metadata_.get(), key.c_str(), texts.data(), texts.size());
}
void GgufDraft::remove(const std::string& key) { gguf_remove_key(metadata_.get(), key.c_str()); }

void GgufDraft::add_floats(const std::string& name, std::vector<int64_t> ne) {
  const auto n = std::accumulate(ne.begin(), ne.end(), int64_t{1}, std::multiplies<>());
  std::vector<float> values(static_cast<size_t>(n));
  const DrawSite site{.seed = std::hash<std::string>()(name), .purpose = Purpose::kTest};
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(uniform(site, static_cast<uint32_t>(i)) - 0.5) * 0.25f;
  entries_.push_back({name, GGML_TYPE_F32, std::move(ne), bytes_of<float>(values)});
}
void GgufDraft::add_integers(const std::string& name, const std::vector<int32_t>& values) {
  entries_.push_back({name, GGML_TYPE_I32, {static_cast<int64_t>(values.size())}, bytes_of<int32_t>(values)});
}
void GgufDraft::add_integers(const std::string& name, const std::vector<int64_t>& values) {
  entries_.push_back({name, GGML_TYPE_I64, {static_cast<int64_t>(values.size())}, bytes_of<int64_t>(values)});
}

void GgufDraft::add(const std::string& name, const Tensor& tensor, const std::vector<int32_t>& rows) {
  std::vector<int32_t> all = rows;
  if (all.empty()) {
    all.resize(static_cast<size_t>(tensor.ne[1]));
    std::iota(all.begin(), all.end(), 0);
  }
  Entry entry{name, tensor.type, {tensor.ne[0]}, {}};
  if (name.find("norm") == std::string::npos) entry.ne.push_back(static_cast<int64_t>(all.size()));
  for (const int32_t row : all) {
    const std::byte* from = tensor.data + static_cast<size_t>(row) * tensor.row_bytes;
    entry.bytes.insert(entry.bytes.end(), from, from + tensor.row_bytes);
  }
  entries_.push_back(std::move(entry));
}

GgufDraft::Entry& GgufDraft::entry(const std::string& name) {
  const auto at = std::ranges::find(entries_, name, &Entry::name);
  if (at == entries_.end()) throw std::runtime_error("no tensor " + name);
  return *at;
}
void GgufDraft::remove_tensor(const std::string& name) {
  std::erase_if(entries_, [&](const Entry& e) { return e.name == name; });
}

std::string GgufDraft::write(const std::string& path) const {
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> file(gguf_init_empty(), &gguf_free);
  gguf_set_kv(file.get(), metadata_.get());
  const std::unique_ptr<ggml_context, decltype(&ggml_free)> context(
      ggml_init({ggml_tensor_overhead() * (entries_.size() + 1), nullptr, true}), &ggml_free);
  for (const Entry& entry : entries_) {
    ggml_tensor* tensor =
        ggml_new_tensor(context.get(), entry.type, static_cast<int>(entry.ne.size()), entry.ne.data());
    if (ggml_nbytes(tensor) != entry.bytes.size()) throw std::runtime_error("bytes of " + entry.name);
    ggml_set_name(tensor, entry.name.c_str());
    tensor->data = const_cast<std::byte*>(entry.bytes.data());
    gguf_add_tensor(file.get(), tensor);
  }
  if (!gguf_write_to_file(file.get(), path.c_str(), false)) throw std::runtime_error("cannot write " + path);
  return path;
}

namespace {

// One head as it comes together.
class Maker {
 public:
  Maker(const ModelFile& target, const TinyHeadSpec& spec)
      : target_(target),
        spec_(spec),
        h_(target.hparams()),
        d_(h_.d_model),
        weights_(value_of(target.map({0, h_.n_layers}, true, true))) {
    if (spec_.layers.empty() && spec_.kind != "exit") spec_.layers = {h_.n_layers - 1};
    eagle3_ = spec_.kind == "eagle3";
    prefix_ = eagle3_ ? "eagle3." : "sluice-head.";
  }

  GgufDraft make() {
    file_.set("general.architecture", eagle3_ ? "eagle3" : "sluice-head");
    file_.set("general.name", "tiny head");
    say_target();
    say_shape();
    add_layers();
    if (spec_.kind == "spd") add_spd();
    if (eagle3_) add_eagle3();
    if (spec_.kind == "p-eagle") add_p_eagle();
    if (spec_.kind == "exit") set("exit.layer", h_.n_layers / 2);
    if (spec_.kind == "draft") file_.set("sluice-head.draft.layers", spec_.layers);
    add_output();
    return std::move(file_);
  }

 private:
  void set(const std::string& name, int32_t value) { file_.set(prefix_ + name, static_cast<uint32_t>(value)); }
  void add_matrix(const std::string& name, int64_t n_in, int64_t n_out) { file_.add_floats(name, {n_in, n_out}); }

  void say_target() {
    if (!spec_.signed_by_us) return;
    file_.set("sluice-head.target.name", h_.name);
    file_.set("sluice-head.target.fingerprint", value_of(fingerprint(target_)));
    file_.set("sluice-head.target.block_count", static_cast<uint32_t>(h_.n_layers));
    file_.set("sluice-head.target.embedding_length", static_cast<uint32_t>(d_));
    file_.set("sluice-head.target.vocab_size", static_cast<uint32_t>(h_.n_vocab));
  }

  void say_shape() {
    if (!eagle3_) {
      file_.set("sluice-head.version", uint32_t{1});
      file_.set("sluice-head.kind", spec_.kind);
      const bool halves = h_.rope.pairing == RopeParameters::Pairing::kHalves;
      file_.set("sluice-head.rope.pairing", halves ? "halves" : "adjacent");
      set("draft_vocab", static_cast<int32_t>(spec_.vocabulary.size()));
    }
    set("block_count", static_cast<int32_t>(spec_.layers.size()));
    set("embedding_length", h_.d_model);
    set("feed_forward_length", h_.d_ff);
    set("attention.head_count", h_.n_heads);
    set("attention.head_count_kv", h_.n_kv_heads);
    set("attention.key_length", h_.head_dim);
    file_.set(prefix_ + "attention.layer_norm_rms_epsilon", h_.norm_epsilon);
    file_.set(prefix_ + "rope.freq_base", h_.rope.base);
  }

  int64_t heads_of(const std::string& name) const { return name == "attn_q" ? h_.n_heads : h_.n_kv_heads; }

  void add_layers() {
    const bool pairs = eagle3_ || spec_.kind == "p-eagle";
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      const LayerWeights& layer = weights_.layers[static_cast<size_t>(spec_.layers[i])];
      const std::string blk = "blk." + std::to_string(i) + ".";
      for (const auto& [name, tensor] : {std::pair{"attn_q", &layer.q}, {"attn_k", &layer.k}, {"attn_v", &layer.v}}) {
        if (pairs && i == 0)
          add_matrix(blk + name + ".weight", 2 * d_, heads_of(name) * h_.head_dim);
        else if (!*tensor || (h_.gated_attention && tensor == &layer.q))
          add_matrix(blk + name + ".weight", d_, heads_of(name) * h_.head_dim);
        else
          file_.add(blk + name + ".weight", *tensor);
      }
      file_.add(blk + "attn_norm.weight", layer.attention_norm);
      file_.add(blk + "attn_output.weight", layer.attention_out);
      file_.add(blk + "ffn_norm.weight", layer.ffn_norm);
      if (!layer.gate) {  // the target has experts
        add_matrix(blk + "ffn_gate.weight", d_, h_.d_ff);
        add_matrix(blk + "ffn_up.weight", d_, h_.d_ff);
        add_matrix(blk + "ffn_down.weight", h_.d_ff, d_);
        continue;
      }
      file_.add(blk + "ffn_gate.weight", layer.gate);
      file_.add(blk + "ffn_up.weight", layer.up);
      file_.add(blk + "ffn_down.weight", layer.down);
    }
  }

  void add_spd() {
    const auto n = static_cast<int32_t>(spec_.cuts.size()) - 1;
    std::vector<int32_t> taps = {0}, sizes = {1};
    for (int32_t k = 1; k <= n; ++k) {
      const int32_t deepest = spec_.cuts[static_cast<size_t>(k)];
      taps.insert(taps.end(), {0, deepest / 2, deepest});
      sizes.push_back(3);
    }
    set("spd.stages", n);
    file_.set("sluice-head.spd.cuts", spec_.cuts);
    file_.set("sluice-head.spd.taps", taps);
    file_.set("sluice-head.spd.taps_per_depth", sizes);
    file_.set("sluice-head.spd.attention", "full");
    file_.set("sluice-head.spd.timing", spec_.output_timing ? "output" : "input");
    file_.set("sluice-head.spd.feature_norm", true);
    file_.set("sluice-head.spd.shared_fc", spec_.shared_fc);
    for (int32_t k = spec_.output_timing ? 1 : 0; k <= (spec_.shared_fc ? 1 : n); ++k)
      add_matrix("fc." + std::to_string(k) + ".weight", sizes[static_cast<size_t>(k)] * d_, d_);
  }

  void add_eagle3() {
    set("context_length", h_.context_length);
    set("target_hidden_size", h_.d_model);
    file_.set("eagle3.target_layers", std::vector<int32_t>{1, 2, 3});
    file_.set("eagle3.norm_before_fc", spec_.feature_norm);
    file_.set("tokenizer.ggml.tokens", std::vector<std::string>(static_cast<size_t>(h_.n_vocab), "token"));
    add_pair("enc.output_norm.weight");
  }

  void add_p_eagle() {
    file_.set("sluice-head.p-eagle.taps", std::vector<int32_t>{1, 2, 3});
    set("p-eagle.groups", 5);
    add_pair("feature_norm.weight");
    if (spec_.masks_by_depth)
      add_matrix("mask_hidden", d_, 5);
    else
      file_.add_floats("mask_hidden", {d_});
    file_.add_floats("mask_embedding", {d_});
    if (spec_.own_embedding)
      file_.add("token_embd.weight", weights_.token_embedding);
    else
      file_.set("sluice-head.borrows", std::vector<std::string>{"token_embd.weight"});
  }

  void add_pair(const char* feature_norm) {
    add_matrix("fc.weight", 3 * d_, d_);
    if (spec_.feature_norm) file_.add_floats(feature_norm, {3 * d_});
    file_.add_floats("blk.0.attn_norm_2.weight", {d_});
  }

  void add_output() {
    if (spec_.own_output) {
      file_.add("output_norm.weight", weights_.output_norm);
      file_.add("output.weight", weights_.output, spec_.vocabulary);
    }
    if (spec_.vocabulary.empty()) return;
    if (eagle3_)
      file_.add_integers("d2t", std::vector<int64_t>(spec_.vocabulary.begin(), spec_.vocabulary.end()));
    else
      file_.add_integers("d2t", spec_.vocabulary);
  }

  const ModelFile& target_;
  TinyHeadSpec spec_;
  const HyperParameters& h_;
  int64_t d_;
  StageWeights weights_;
  bool eagle3_ = false;
  std::string prefix_;
  GgufDraft file_;
};

}  // namespace

GgufDraft tiny_head(const ModelFile& target, const TinyHeadSpec& spec) { return Maker(target, spec).make(); }

}  // namespace sluice::test

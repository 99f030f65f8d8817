// A trained head's file: what it is, which target it belongs to, and its weights (docs/formats.md, "Heads").
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/choice.h"
#include "base/ids.h"
#include "model/model_file.h"

namespace sluice {

// kMtp: the layer behind the others with which a model's file may come, and which was trained with it to predict one
// token further (multi-token prediction; DeepSeek-V3, section 2.2).
enum class HeadKind : uint8_t { kSpd, kEagle3, kPEagle, kExit, kDraft, kMtp };
inline constexpr Choice<HeadKind> kHeadKinds[] = {{"spd", HeadKind::kSpd},        {"eagle3", HeadKind::kEagle3},
                                                  {"p-eagle", HeadKind::kPEagle}, {"exit", HeadKind::kExit},
                                                  {"draft", HeadKind::kDraft},    {"mtp", HeadKind::kMtp}};
inline const char* name(HeadKind kind) { return name_of(kHeadKinds, kind); }

struct HeadParameters {
  HeadKind kind = HeadKind::kSpd;
  // Of the head's own layers; n_vocab, d_model and context_length are the target's, n_layers may be 0 (exit).
  HyperParameters hparams;
  // The target's token of each row of logits, ascending; empty: row i is token i.
  std::vector<Token> vocabulary;
  // The layers of the target whose states the head reads (l: after layer l, 0: the token embedding). spd: by depth 0 …
  // n; eagle3, p-eagle: one list of three; exit, mtp: one list of one; draft: none.
  std::vector<std::vector<int32_t>> taps;

  std::vector<int32_t> cuts;  // spd: the first layers of its n stages, then the number of layers
  bool full_attention = false, output_timing = false, shared_fc = false;  // spd
  // spd: states are divided by their root mean square before `fc`; the others: HeadWeights::feature_norm is there.
  bool feature_norm = false;
  bool norm_before_residual = false;  // eagle3
  int32_t groups = 0;                 // p-eagle: K_train

  // All the layers of `taps`, rising, each once.
  std::vector<int32_t> tapped_layers() const;
  int32_t stages() const { return static_cast<int32_t>(cuts.size()) - 1; }  // spd: n
  // Rows of logits.
  int32_t n_guessable() const { return vocabulary.empty() ? hparams.n_vocab : static_cast<int32_t>(vocabulary.size()); }
};

// The model that a head belongs to, as its file says. An EAGLE-3 head that others made may leave out all but the sizes:
// then texts are empty, and n_layers is 0.
struct HeadTarget {
  std::string name, fingerprint;
  int32_t n_layers = 0, d_model = 0, n_vocab = 0;
};

// Mapped while this lives. Tensors that the head doesn't have are empty; the target's stand where it borrows.
struct HeadWeights {
  // In eagle3 and p-eagle the first layer's q, k and v have 2 d_model columns: the normed embedding, then the normed
  // hidden state; its attention_norm is of the embedding.
  std::vector<LayerWeights> layers;
  Tensor hidden_norm;      // [d_model] eagle3, p-eagle, mtp: of the hidden state
  Tensor embedding_norm;   // [d_model] mtp: of the embedding
  Tensor feature_norm;     // eagle3, p-eagle: [3 d_model], of the concatenated states, if they are normed before `fc`;
                           // mtp: [d_model], the target's output norm
  std::vector<Tensor> fc;  // spd: by depth 0 … n, [d_model, taps x d_model] (shared: the same one several times; with
                           // output timing the first is empty); eagle3, p-eagle: one, [d_model, 3 d_model]; mtp: one,
                           // [d_model, 2 d_model], of the normed embedding and the normed hidden state
  Tensor mask_hidden, mask_embedding;  // p-eagle: [groups or 1, d_model] and [d_model]
  Tensor token_embedding;              // [n_vocab, d_model]; not of an exit
  Tensor output_norm, output;          // [d_model], [n_guessable(), d_model]
  std::vector<StageWeights> mappings;  // what holds them
};

class HeadFile {
 public:
  // Checks everything as ModelFile::open does, and that the head belongs to `target`: its fingerprint, or of an eagle3
  // head that has none, or where only part of the target is there, its sizes. `target` must outlive this. Errors
  // (kInput) name the file and what is wrong: a head of another model says of which. The target's own file: its layer
  // that predicts further tokens, if it has one.
  static Result<HeadFile> open(const std::string& path, const ModelFile& target);

  // The same without the target, to look at what the file says: everything but whether the target fits has been
  // checked.
  static Result<HeadFile> inspect(const std::string& path);

  // Whether the file says that it is a head (architecture `sluice-head` or `eagle3`), so that a command can say what
  // it is good for. False as well for what is no GGUF file.
  static bool is_head(const std::string& path);

  HeadFile(HeadFile&&) noexcept;
  HeadFile& operator=(HeadFile&&) noexcept;
  ~HeadFile();

  const std::string& path() const;
  const std::string& target_path() const;  // REQUIRES: opened with a target
  const HeadParameters& parameters() const;
  const HeadTarget& target() const;
  // Whether it computes with the target's token embedding, with its output norm or matrix.
  bool borrows_embedding() const;
  bool borrows_output() const;
  // REQUIRES of both: opened with a target.
  Result<HeadWeights> map() const;
  Result<Sha256> identity() const;  // of all that it computes with: its own file, then its target's

  // Of the file alone.
  std::string general_type() const;  // e.g. "F16", for people
  int64_t parameter_count() const;
  uint64_t file_bytes() const;
  std::vector<std::shared_ptr<const OpenFile>> files() const;
  std::vector<MetadataEntry> metadata() const;
  std::vector<ModelFile::TensorSummary> tensors() const;

 private:
  struct Contents;
  explicit HeadFile(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

}  // namespace sluice

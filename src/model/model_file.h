// A GGUF model file: everything it claims is checked before memory is allocated for it and before any library sees it.
#pragma once

#include <ggml.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/layer_range.h"
#include "base/result.h"
#include "model/file_identity.h"

namespace sluice {

// Rotary position embedding as the families here use it. The names on the right are ggml_rope_ext's, and the values are
// as it takes them: cos and sin are multiplied by attention_factor, and with YaRN by 1 + 0.1 ln(factor) besides.
struct RopeParameters {
  enum class Pairing : uint8_t {
    kAdjacent,  // (x[2i], x[2i+1]) turn together: family llama in GGUF
    kHalves,    // (x[i], x[i + n/2]): qwen2, qwen3
  };
  enum class Scaling : uint8_t { kNone, kLinear, kYarn };
  Pairing pairing = Pairing::kAdjacent;
  Scaling scaling = Scaling::kNone;
  int32_t n_dims = 0;     // how many of a head's dimensions turn
  float base = 10000.0f;  // theta
  float factor = 1.0f;    // context extension: positions are divided by it (linear; YaRN: in its low frequencies)
  int32_t original_context = 0;               // YaRN: the context the model was first trained with
  float extrapolation_mix = 0.0f;             // ext_factor: 1 with YaRN, else 0
  float attention_factor = 1.0f;              // attn_factor
  float beta_fast = 32.0f, beta_slow = 1.0f;  // YaRN

  bool operator==(const RopeParameters&) const = default;
};

// A mixture of experts in place of one feed-forward network: a router gives each token to a few of many small networks,
// whose outputs are added up by weights that it gives.
struct MixtureParameters {
  int32_t n_experts = 0, n_used = 0;  // in all, and by a token; 0: the model has no experts
  int32_t d_ff = 0, d_shared = 0;     // of an expert, and of one that every token is given to besides; 0: there is none
  bool is_shared_gated = false;       // the latter counts by the sigmoid of a logit of its own, else as it is
  int32_t n_dense_layers = 0;         // the first ones have no experts
  // How logits become shares: kSoftmaxOfChosen takes it over those that are chosen alone. In libllama's
  // order.
  enum class Gating : uint8_t { kSoftmax, kSigmoid, kSoftmaxOfChosen };
  Gating gating = Gating::kSoftmax;
  bool biased = false;                      // experts are chosen by their shares and a bias of each
  int32_t n_groups = 1, n_groups_used = 1;  // of so many groups of experts, alike in size, a token uses the best ones
  bool normalised = false;                  // the weights of those that a token uses are divided by their sum
  float scale = 1.0f;                       // then times this
  bool beside_dense = false;                // layers have a feed-forward network that all tokens go through besides

  explicit operator bool() const { return n_experts > 0; }
  bool is_in(int32_t layer) const { return n_experts > 0 && layer >= n_dense_layers; }
};

// Multi-head latent attention (DeepSeek-V2, section 2.1): a cell keeps one latent vector, from which every head makes
// its keys and values, and one part of a key that turns and is common to all heads.
struct LatentParameters {
  int32_t rank = 0;            // of the latent; 0: keys and values are kept as they are
  int32_t q_rank = 0;          // queries are projected through so many values; 0: at once
  int32_t key = 0, value = 0;  // of a head: values of its keys that don't turn, and of its values

  explicit operator bool() const { return rank > 0; }
};

// Gated delta nets (Yang et al. 2024, "Gated Delta Networks") in place of attention: what such a layer knows of a path
// is folded into a state, a matrix a head, that does not grow. Its queries, keys and values pass a short convolution
// first.
struct DeltaNetParameters {
  int32_t n_key_heads = 0, n_value_heads = 0;  // a key head, which is a query head too, is read by several value heads
  int32_t head_dim = 0;                        // of all of them
  int32_t n_taps = 0;                          // tokens that the convolution sees, its own included, up to kMostTaps
  // A key head is read by neighbours: h / (value heads / key heads); else by every so-many-th: h mod key heads.
  bool neighbours_share = false;
  std::vector<uint8_t> layers;  // [n_layers], or empty: whether it is such a layer

  int64_t key_width() const { return int64_t{n_key_heads} * head_dim; }
  int64_t value_width() const { return int64_t{n_value_heads} * head_dim; }
  int64_t mixed_width() const { return 2 * key_width() + value_width(); }  // queries, keys and values
  // All that is projected: those, the output's gate, and of each head how much it takes in and keeps.
  int64_t projected_width() const { return mixed_width() + value_width() + 2 * int64_t{n_value_heads}; }
  bool is_in(int32_t layer) const { return layer < std::ssize(layers) && layers[static_cast<size_t>(layer)] != 0; }
};

// That a gated delta net's convolution may have.
inline constexpr int32_t kMostTaps = 32;

// Between a feed-forward network's products: silu(gate) * up, or as kernels/table.h says of clamped_silu_times and
// gelu_times.
enum class Activation : uint8_t { kSilu, kClampedSilu, kGelu };

struct HyperParameters {
  std::string architecture;  // "llama", "qwen2", "qwen3moe", …; of heads "sluice-head", "eagle3"
  std::string name;          // general.name, or the file's name without its ending
  int32_t n_layers = 0, d_model = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, d_ff = 0, n_vocab = 0;
  std::vector<int32_t> d_ff_of_layers;               // [n_layers], or empty: all are d_ff wide, else none is wider
  int32_t window_kv_heads = 0, window_head_dim = 0;  // in layers that see a window; 0: as in all others
  int32_t n_sharing_layers = 0;                      // the last ones, which read keys and values of earlier layers
  bool normed_values = false;                        // values are divided by their root mean square, head by head
  int32_t d_per_layer = 0;                           // of the embedding that a token has for each layer; 0: none
  int32_t n_further_layers = 0;  // behind the n_layers: they predict further tokens, and are left alone
  int32_t context_length = 0;    // the longest the model was trained for
  float norm_epsilon = 1e-5f;
  RopeParameters rope, window_rope;  // the latter in layers that see a window
  MixtureParameters mixture;
  LatentParameters latent;  // with it head_dim is the size of what a cell keeps, and n_kv_heads is 1
  DeltaNetParameters delta;
  bool gated_attention = false;  // each query comes with a gate of its size, by which what its head attends to counts
  Activation activation = Activation::kSilu;
  float embedding_scale = 1.0f;  // states begin as a token's embedding times this
  float attention_scale = 0.0f;  // scores are multiplied by it; 0: 1 / sqrt(head_dim)
  // Scores, and logits, come to c tanh(x / c) with this c; 0: as they are.
  float attention_cap = 0.0f, logit_cap = 0.0f;
  int32_t window = 0;                // tokens that a row sees at most, itself included; 0: all
  std::vector<uint8_t> sees_window;  // [n_layers], or empty: whether a layer sees only that

  int32_t window_of(int32_t layer) const {
    return layer < std::ssize(sees_window) && sees_window[static_cast<size_t>(layer)] != 0 ? window : 0;
  }
  int32_t kv_heads_of(int32_t layer) const {
    return window_kv_heads > 0 && window_of(layer) > 0 ? window_kv_heads : n_kv_heads;
  }
  int32_t head_dim_of(int32_t layer) const {
    return window_head_dim > 0 && window_of(layer) > 0 ? window_head_dim : head_dim;
  }
  int32_t d_ff_of(int32_t layer) const {
    return d_ff_of_layers.empty() ? d_ff : d_ff_of_layers[static_cast<size_t>(layer)];
  }
  // The layer whose keys and values it reads: itself, or of those that share the last of its kind, with a window or
  // without, that has its own.
  int32_t kv_layer_of(int32_t layer) const {
    const int32_t own = n_layers - n_sharing_layers;
    return layer < own ? layer : own - (window_of(layer) > 0 ? 2 : 1);
  }
  // A layer from `cut` on that reads keys and values of one before it, so that no stage may begin there; or -1.
  int32_t parted_by(int32_t cut) const {
    for (int32_t layer = std::max(cut, n_layers - n_sharing_layers); layer < n_layers; ++layer)
      if (kv_layer_of(layer) < cut) return layer;
    return -1;
  }
  // Whether what is known of a path is folded in some layers, so that no path can be cut back to where it was before.
  bool folds() const { return std::find(delta.layers.begin(), delta.layers.end(), 1) != delta.layers.end(); }
  // Values that a cell keeps in a layer.
  int64_t values_of_cell(int32_t layer) const {
    if (delta.is_in(layer) || kv_layer_of(layer) != layer) return 0;
    return int64_t{latent ? 1 : 2} * kv_heads_of(layer) * head_dim_of(layer);
  }
  // And in all of them.
  int64_t values_of_cell() const {
    int64_t values = 0;
    for (int32_t layer = 0; layer < n_layers; ++layer) values += values_of_cell(layer);
    return values;
  }
  const RopeParameters& rope_of(int32_t layer) const { return window_of(layer) > 0 ? window_rope : rope; }
};

// A tensor in mapped memory. ne as in ggml: ne[0] is the contiguous dimension. A matrix [n_out, n_in] has ne = {n_in,
// n_out}.
struct Tensor {
  std::string name;
  ggml_type type = GGML_TYPE_F32;
  int64_t ne[2] = {0, 1};
  const std::byte* data = nullptr;  // owned by the StageWeights (or other mapping) that it came from
  size_t row_bytes = 0;             // bytes from one row to the next
  int64_t n_matrices = 1;           // of that shape, one after another

  explicit operator bool() const { return data != nullptr; }
  size_t bytes() const { return row_bytes * static_cast<size_t>(ne[1] * n_matrices); }
  // One of its matrices. REQUIRES: 0 <= i < n_matrices.
  Tensor matrix(int64_t i) const;
  // A row of a matrix as a vector. REQUIRES: 0 <= i < ne[1].
  Tensor row(int64_t i) const;
  // n rows of a matrix as a matrix. REQUIRES: they are rows of it.
  Tensor rows(int64_t first, int64_t n) const;
};

// The weights of one layer. Tensors that the model doesn't have are empty.
struct LayerWeights {
  Tensor attention_norm;          // [d_model]
  Tensor q, k, v;                 // [heads * head_dim, d_model]; k and v: [kv_heads * head_dim, d_model]. Gated: q
                                  // has of each head its gate behind its query. No v: values are what k gives
  Tensor q_bias, k_bias, v_bias;  // qwen2; some llama files
  Tensor q_norm, k_norm;          // [head_dim]: qwen3
  Tensor attention_out;           // [d_model, heads * head_dim]
  Tensor attention_out_bias;
  // Of latent attention: what queries go through, instead of q; the latent with the key part that turns; and what makes
  // keys and values of the latent, a matrix a head.
  Tensor q_a, q_a_norm, q_b;  // [q_rank, d_model], [q_rank], [heads * (key + turned), q_rank]
  Tensor kv_a, kv_a_norm;     // [rank + turned, d_model], [rank]
  Tensor k_b, v_b;            // [heads] matrices [rank, key] and [value, rank]
  // Of a gated delta net: queries, keys and values in a row; what its outcome is gated by; the convolution; of each
  // value head how much it takes in and how much it keeps, the latter with a bias and a factor; the outcome's norm.
  Tensor mixed, output_gate;                  // [mixed_width, d_model], [value_width, d_model]
  Tensor convolution;                         // [mixed_width, taps]
  Tensor intake, keep;                        // [value_heads, d_model]; or
  Tensor intake_and_keep;                     // [2 value_heads, d_model]: of a key head's both, one after another
  Tensor keep_bias, keep_factor, state_norm;  // [value_heads], [value_heads], [head_dim]
  Tensor attention_post_norm, ffn_post_norm;  // [d_model]: of what is added to the states
  Tensor sinks;     // [heads]: a score of each head that takes its share of attention, and gives nothing
  Tensor ffn_norm;  // [d_model]
  Tensor gate, up;  // [d_ff, d_model]
  Tensor down;      // [d_model, d_ff]
  Tensor gate_bias, up_bias, down_bias;
  // Of a mixture of experts, instead of gate, up and down.
  Tensor router, router_share_bias;  // [experts, d_model]; [experts]: added to the shares by which they are chosen
  Tensor gate_experts, up_experts, down_experts;  // [experts] matrices: those of gate, up and down, narrower
  Tensor router_logit_bias;                       // [experts]
  Tensor gate_expert_biases, up_expert_biases, down_expert_biases;  // [experts, d_ff], the last [experts, d_model]
  Tensor shared_router;  // [d_model]: what the shared expert counts, before the sigmoid
  Tensor gate_shared, up_shared, down_shared;
  // Of a mixture beside a dense network: gate and up may be one, one above the other; what counts an expert's output
  // besides; norms of what the router reads, of what the experts read and give, and of what the dense network gives.
  Tensor gate_up_experts;                                                // [experts] matrices [2 d_ff, d_model]
  Tensor expert_scales;                                                  // [experts]
  Tensor router_norm, experts_norm, experts_post_norm, dense_post_norm;  // [d_model]
  // Of the embedding that a token has for the layer.
  Tensor per_layer_gate, per_layer_out;  // [d_per_layer, d_model], [d_model, d_per_layer]
  Tensor per_layer_post_norm;            // [d_model]
  Tensor output_scale;                   // [1]: the layer's states are multiplied by it
};

class ModelFile;
struct HeadContents;

// The mapped weights of one stage. Maps only the file's pages that hold them; unmapped when this goes.
class StageWeights {
 public:
  struct Mapping;
  StageWeights(StageWeights&&) noexcept;
  StageWeights& operator=(StageWeights&&) noexcept;
  ~StageWeights();

  LayerRange range;
  std::vector<LayerWeights> layers;  // [range.count()]
  Tensor token_embedding;            // [n_vocab, d_model]; if asked for, or if layers have embeddings of their own:
  Tensor per_layer_embedding;        // [n_vocab, n_layers * d_per_layer]
  Tensor per_layer_projection;       // [n_layers * d_per_layer, d_model]
  Tensor per_layer_norm;             // [d_per_layer]
  Tensor output_norm, output;        // [d_model]; [n_vocab, d_model] (the token embedding when tied); if asked for
  Tensor output_bias;
  Tensor rope_factors;  // [rope.n_dims / 2] f32, if the model has them: frequencies are divided by these

  // Tells the kernel that the pages behind `tensor` are no longer needed (its values were packed elsewhere).
  void release(const Tensor& tensor) const;

 private:
  friend class ModelFile;
  friend class HeadFile;
  StageWeights();
  std::vector<std::unique_ptr<Mapping>> mappings_;
};

// What `inspect` and the tokenizer read: the file's metadata, typed and bounded.
struct MetadataEntry {
  std::string key, type, value;  // value shortened for display
};

// Where a model's tokenizer is, whose file has been checked.
struct VocabularyPlace {
  std::string path;  // of a draft head its target's
  int32_t n_tokens = 0;
  bool splits_recursively = false;  // libllama needs a deep stack to tokenize long texts
};

class ModelFile {
 public:
  // Opens a file, or the first of a sharded model (name-00001-of-0000N.gguf; any shard's name will do) with all its
  // shards, and checks magic, version, counts, every extent against the file's size, types, shapes against the
  // hyperparameters, the vocabulary (lengths, duplicates, types, special ids, byte tokens, merges), and that the family
  // is known. Errors name the file and what is wrong; kind kInput.
  static Result<ModelFile> open(const std::string& path);

  // The same of files that are not all there: some tensors have come from elsewhere, others are holes. identity: that
  // of the whole.
  static Result<ModelFile> open_part(const std::string& path, const Sha256& identity);
  bool is_part() const;

  // A trained head of kind `draft` as the model that it is: layers and norm are its own, and what else it lacks is the
  // target's, with the target's vocabulary. Checks what HeadFile::open does. Errors (kInput) name the file; a head of
  // another kind is told apart.
  static Result<ModelFile> open_draft(const std::string& path, const ModelFile& target);

  ModelFile(ModelFile&&) noexcept;
  ModelFile& operator=(ModelFile&&) noexcept;
  ~ModelFile();

  const std::string& path() const;  // of the first shard
  const std::string& vocabulary_path() const { return vocabulary().path; }
  const VocabularyPlace& vocabulary() const;
  const HyperParameters& hparams() const;
  bool tied_head() const;                    // the output matrix is the token embedding
  const std::string& chat_template() const;  // Jinja source; empty if the file has none
  // The token of each row of logits, ascending; empty: row i is token i.
  const std::vector<Token>& head_tokens() const;
  int32_t n_logits() const;          // rows of the output matrix
  std::string general_type() const;  // e.g. "Q4_1 mostly", for people
  int64_t parameter_count() const;
  uint64_t file_bytes() const;  // all shards; of a draft head without its target

  // Of all that it computes with: its shards in order, of a draft head then its target's. Reads the files, unless that
  // is known from before. Errors as file_identity(). Thread safety: none.
  Result<Sha256> identity() const;
  // Those files.
  std::vector<std::shared_ptr<const OpenFile>> files() const;

  // Bytes of weights that a pass reads: one layer's, the output head's (for one row).
  uint64_t layer_bytes(int32_t layer) const;
  uint64_t head_bytes() const;

  std::vector<MetadataEntry> metadata() const;
  struct TensorSummary {
    std::string name;
    std::string type;
    int64_t ne[4];
    uint64_t bytes;
  };
  std::vector<TensorSummary> tensors() const;

  // What map() of these layers reads of its files, and what open() does: bytes [begin, end) of a file, which is
  // numbered as in files(), in no order.
  struct FileRange {
    size_t file = 0;
    uint64_t begin = 0, end = 0;
  };
  std::vector<FileRange> ranges(LayerRange range, bool with_embedding, bool with_head) const;

  // Maps layers [range.first, range.last); REQUIRES 0 <= first <= last <= n_layers.
  Result<StageWeights> map(LayerRange range, bool with_embedding, bool with_head) const;

 private:
  friend class HeadFile;
  // The layer that predicts further tokens, as a head of kind mtp. Errors (kInput) name the file: it has none, or more
  // than one, or not all of it.
  Result<HeadContents> further_layer() const;
  struct Contents;
  explicit ModelFile(std::unique_ptr<Contents> contents);
  std::unique_ptr<Contents> contents_;
};

}  // namespace sluice

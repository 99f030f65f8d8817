// The operations of compute/block.h as nodes of a ggml graph: what they leave is a tensor that has yet to be computed.
//
// Attention, in one of two ways. Where bits must not move, each row sees keys and values that are gathered in the order
// of its path, from index 0 on, without gaps. So the order in which a kernel adds them up depends on the path alone,
// wherever its cells lie and whatever other branches there are (docs/devices.md, "Which bits does it promise?"). It
// costs a copy of its path a row, or one for all rows that are a chain, as those of prompts are. Else all rows see the
// cells where they are, under a mask.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <optional>

#include "compute/ggml_graph.h"
#include "model/model_file.h"

namespace sluice {

// y = x W^T + b. weight: [n_out, n_in] in the file's type; bias: [n_out] f32, or null.
struct GgmlLinear {
  ggml_tensor *weight = nullptr, *bias = nullptr;
};

// Of experts that stand beside a dense network: compute/mixture.h.
struct GgmlNormsBesideDense {
  ggml_tensor *router = nullptr, *experts = nullptr, *experts_post = nullptr, *dense_post = nullptr;  // [d_model]
};

// A mixture of experts on a device: compute/mixture.h. Matrices of experts have three dimensions.
struct GgmlMixture {
  GgmlLinear router, gate, up, down;               // biases of experts: [experts, width]
  GgmlLinear gate_up;                              // instead of the two: [experts, 2 width, d_model]
  ggml_tensor* scales = nullptr;                   // [experts], by which their outputs are multiplied besides, or null
  ggml_tensor* biases = nullptr;                   // [experts], added to what they are chosen by, or null
  GgmlLinear shared_router;                        // of a shared expert that is weighed
  GgmlLinear gate_shared, up_shared, down_shared;  // of a shared expert, if there is one
  std::optional<GgmlNormsBesideDense> beside_dense;
};

// What a token gives a layer, on a device: compute/per_layer_embedding.h.
struct GgmlPerLayerInput {
  size_t at = 0;                                      // the layer's place in the stage
  GgmlLinear projection, gate, out;                   // [n, d_model] of this layer alone, [n, d_model], [d_model, n]
  ggml_tensor *norm = nullptr, *post_norm = nullptr;  // [n], [d_model]
};

// Latent attention on a device: compute/latent_attention.h. Matrices of heads have three dimensions.
struct GgmlLatentAttention {
  GgmlLinear q_a, q, kv_a;  // q_a may have no weight
  ggml_tensor *q_a_norm = nullptr, *kv_a_norm = nullptr;
  ggml_tensor *k_b = nullptr, *v_b = nullptr;  // [heads, rank, key], [heads, value, rank]
};

// The products of a gated delta net (compute/delta_net.h), of which a device computes no more.
struct GgmlDeltaNet {
  GgmlLinear mixed, output_gate, intake, keep;  // keep may have no weight
};

// A layer on a device. Norms are f32; those of queries and keys may be null.
struct GgmlLayer {
  struct NoFormats {};  // ggml chooses how inputs of products are rounded
  ggml_tensor *attention_norm = nullptr, *ffn_norm = nullptr, *q_norm = nullptr, *k_norm = nullptr;
  ggml_tensor *attention_post_norm = nullptr, *ffn_post_norm = nullptr;  // of what is added to the states, or null
  ggml_tensor* sinks = nullptr;                                          // [heads] f32 or null
  bool has_window = false;
  int32_t head_dim = 0, n_kv_heads = 0;       // of its cells
  GgmlLinear q, k, v;                         // without v values are what k gives, without k those of another layer; or
  std::optional<GgmlLatentAttention> latent;  // of latents; or
  std::optional<GgmlDeltaNet> delta;          // no attention
  GgmlLinear attention_out;
  GgmlLinear gate, up, down;           // or
  std::optional<GgmlMixture> mixture;  // of experts
  std::optional<GgmlPerLayerInput> per_layer;
  float output_scale = 1.0F;
  // [cells, kv_heads * head_dim] f16 or f32; no values where they lie in the keys, nothing without attention. Without k
  // another layer's.
  ggml_tensor *keys = nullptr, *values = nullptr;
  NoFormats qkv_formats, ffn_formats;
};

// What a pass is given, one for all layers.
struct GgmlInputs {
  ggml_tensor* hidden = nullptr;     // [rows, d_model] f32
  ggml_tensor* positions = nullptr;  // [rows] i32
  ggml_tensor* written = nullptr;    // [rows] i64: the cells that rows' keys and values go to
  // [queries, n] i32, flat: the cells of each row's path in its order, then any. If rows are a chain [n]: of its end,
  // as all others' paths are what that begins with. Null: rows see cells 0 … n - 1.
  ggml_tensor* paths = nullptr;
  bool is_chain = false;
  int64_t together = 0;  // queries, with paths: so many go through attention at a time, whose kernels look at that
  // Whether the device gathers numbers of i32: then two of f16 go as one, and stay what they are. Else they become f32.
  bool gathers_pairs = false;
  // 0 for those of the path, else minus infinity: [queries, 1, 1, n] f16 with paths, else [rows, n].
  ggml_tensor* mask = nullptr;
  // The same for layers with a window, which hides what lies before it. Null: no layer has one.
  ggml_tensor* window_mask = nullptr;
  // [rows, value_width] f32: what rows attend to in a layer that folds its past, if the pass begins behind that.
  ggml_tensor* attended = nullptr;
  // [queries] i32: with paths attention may have more queries than there are rows, which come first. Null: as many.
  ggml_tensor* queries = nullptr;
  // Of layers that tokens have embeddings for: the states that rows begin with, [rows, d_model] f32, and of the tables
  // sqrt(n) t_l for each layer of the stage, [rows, layers, n] f32. Else null.
  ggml_tensor *begins = nullptr, *tables = nullptr;
};

class GgmlBlock {
 public:
  // States that grow from layer to layer: [rows, d_model].
  using States = ggml_tensor**;

  // rope_factors: [rope.n_dims / 2] f32 or null.
  GgmlBlock(GgmlGraph& graph, const HyperParameters& hparams, const GgmlInputs& inputs, ggml_tensor* rope_factors)
      : graph_(graph), context_(graph.context()), h_(hparams), inputs_(inputs), rope_factors_(rope_factors) {}

  void normalise(States x, ggml_tensor* weight, GgmlLayer::NoFormats = {});
  void project(const GgmlLayer& layer);
  void turn_and_keep(const GgmlLayer& layer);
  void attend(const GgmlLayer& layer);
  void add_attended(const GgmlLayer& layer, States x);
  void gate(const GgmlLayer& layer);
  void add_gated(const GgmlLayer& layer, States x);
  void add_mixture(const GgmlLayer& layer, States x);
  void finish(const GgmlLayer& layer, States x);

  // What these queries attend to in cells that are given: [rows, heads * values of a head].
  ggml_tensor* attention(const GgmlLayer& layer, ggml_tensor* queries, ggml_tensor* keys, ggml_tensor* values);

  // A layer that folds its past, as far as to what its products give: [rows, projected_width].
  ggml_tensor* projected(const GgmlLayer& layer, States x);
  // And the rest of it, from GgmlInputs::attended on.
  void go_on_after_folding(const GgmlLayer& layer, States x);

  // Of the input: W x + b.
  ggml_tensor* product(const GgmlLinear& weight) const;
  // cap * tanh(x / cap); x itself if cap is 0.
  ggml_tensor* capped(ggml_tensor* x, float cap) const;

 private:
  ggml_tensor* normed(ggml_tensor* x, ggml_tensor* weight) const;
  void add(ggml_tensor* y, ggml_tensor* norm, States x) const;
  ggml_tensor* gated(ggml_tensor* gate, ggml_tensor* up) const;
  ggml_tensor* of_best_groups(ggml_tensor* shares) const;
  ggml_tensor* expert_weights(const GgmlMixture& mixture, ggml_tensor*& chosen) const;
  ggml_tensor* shared_expert(const GgmlMixture& mixture);
  ggml_tensor* add_experts(const GgmlMixture& mixture, ggml_tensor* chosen, ggml_tensor* weights,
                           ggml_tensor* sum) const;
  void add_beside_dense(const GgmlLayer& layer, States x);
  ggml_tensor* layer_input(const GgmlPerLayerInput& per_layer) const;
  void project(const GgmlLatentAttention& latent);
  void turn_and_keep(const GgmlLatentAttention& latent, const GgmlLayer& layer);
  ggml_tensor* values_of(const GgmlLatentAttention& latent) const;
  ggml_tensor* rotate(ggml_tensor* x, bool has_window = false) const;
  ggml_tensor* turn(const GgmlLayer& layer, ggml_tensor* heads, int32_t n, ggml_tensor* norm) const;
  ggml_tensor* part_of_queries(ggml_tensor* both, int64_t part) const;
  ggml_tensor* keep(ggml_tensor* cells, ggml_tensor* rows) const;
  ggml_tensor* asked(int32_t head_dim) const;
  ggml_tensor* gathered(ggml_tensor* cells) const;
  ggml_tensor* seen(const GgmlLayer& layer, ggml_tensor* cells) const;
  ggml_tensor* for_all(ggml_tensor* chain) const;
  ggml_tensor* group(ggml_tensor* of_queries, int64_t first) const;
  int64_t rows() const { return inputs_.positions->ne[0]; }

  GgmlGraph& graph_;
  ggml_context* context_;
  const HyperParameters& h_;
  const GgmlInputs& inputs_;
  ggml_tensor* rope_factors_;
  ggml_tensor* input_ = nullptr;  // of the next products: [rows, width]
  ggml_tensor *q_ = nullptr, *k_ = nullptr, *v_ = nullptr;
  ggml_tensor* gates_ = nullptr;                     // of queries that come with gates: [rows, heads * head_dim]
  ggml_tensor *keys_ = nullptr, *values_ = nullptr;  // the cells, written
};

}  // namespace sluice

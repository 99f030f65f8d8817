// A layer's and the head's weights, ready to be computed with.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/attention.h"
#include "compute/delta_net.h"
#include "compute/latent_attention.h"
#include "compute/linear.h"
#include "compute/memory.h"
#include "compute/mixture.h"
#include "compute/per_layer_embedding.h"
#include "compute/thread_team.h"
#include "model/model_file.h"
#include "wire/recipe.h"

namespace sluice {

struct Layer {
  std::vector<float> attention_norm, ffn_norm;
  std::vector<float> attention_post_norm, ffn_post_norm;  // empty, or [d_model]: of what is added to the states
  std::vector<float> q_norm, k_norm, v_norm;              // empty, or [head_dim]
  std::vector<float> sinks;                               // empty, or [heads]
  int32_t window = 0;                                     // as in HyperParameters::window_of
  Linear q, k, v;                         // without v values are what k gives, without k those of another layer; or
  std::optional<LatentAttention> latent;  // of latents, or
  std::optional<DeltaNet> delta;          // no attention
  Linear attention_out;
  FeedForward ffn;                                                          // or
  std::optional<Mixture> mixture;                                           // of experts
  FormatSet qkv_formats, attention_out_formats, ffn_formats, down_formats;  // of their inputs
  std::optional<PerLayerInput> per_layer;
  float output_scale = 1.0f;
  KvLayer kv;
  const KvLayer* shared_kv = nullptr;  // another layer's, which this one reads instead of its own
};

struct Head {
  std::vector<float> norm;
  Linear output;
  FormatSet formats;
};

// Of the inputs of these.
FormatSet formats_of(std::initializer_list<const Linear*> readers);

// Packs the matrices of a stage into `memory` and gives the file's pages back.
struct Packer {
  const StageWeights& weights;
  Arena& memory;
  ThreadTeam& team;
  bool experts_wait = false;  // in the file, for a pool

  // Errors name a weight of a type that has no product.
  Result<Linear> operator()(const Tensor& weight, const Tensor& bias) const;
  // A copy of a vector, empty if there is none.
  std::vector<float> operator()(const Tensor& vector) const;
};

Result<Layer> make_layer(const Packer& pack, const LayerWeights& weights, KvLayer kv,
                         const MixtureParameters& mixture = {});

// All of a gated delta net but its products.
DeltaNet make_folding(const LayerWeights& weights);

// Of pack.weights.
Result<Head> make_head(const Packer& pack);

// Of pack.weights, whose layers are some of the model's.
Result<PerLayerEmbedding> make_per_layer_embedding(const Packer& pack, const HyperParameters& hparams);

// The state that a token begins with: [d_model]. Zero for one that the model has not, if the options allow such.
void embed(const StageWeights& weights, const HyperParameters& hparams, const StageOptions& options, Token token,
           std::span<float> out);

// Of compute/per_layer_embedding.h sqrt(n) t_l for some layers, from `first` on: out: [layers, n]. table: [n_vocab, all
// layers * n]. Zeros for a token that it has not.
void embed_for_layers(const Tensor& table, Token token, int32_t first, int32_t n, std::span<float> out);

// A vector of weights as f32, or nothing if the model has none.
std::vector<float> vector_or_empty(const Tensor& tensor);

}  // namespace sluice

#include "compute/layer.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

namespace sluice {

FormatSet formats_of(std::initializer_list<const Linear*> readers) {
  FormatSet set;
  for (const Linear* reader : readers) set.add(reader->format());
  return set;
}

void embed(const StageWeights& weights, const HyperParameters& hparams, const StageOptions& options, Token token,
           std::span<float> out) {
  if (options.foreign_tokens && token >= weights.token_embedding.ne[1]) {
    std::ranges::fill(out, 0.0f);
    return;
  }
  copy_row_f32(weights.token_embedding, token, out);
  if (hparams.embedding_scale == 1.0f) return;
  for (float& value : out) value *= hparams.embedding_scale;
}

void embed_for_layers(const Tensor& table, Token token, int32_t first, int32_t n, std::span<float> out) {
  std::vector<float> row(static_cast<size_t>(table.ne[0]));
  if (token < table.ne[1]) copy_row_f32(table, token, row);
  const float scale = std::sqrt(static_cast<float>(n));
  const auto own = std::span(row).subspan(static_cast<size_t>(first) * static_cast<size_t>(n), out.size());
  std::ranges::transform(own, out.begin(), [scale](float t) { return t * scale; });
}

std::vector<float> vector_or_empty(const Tensor& tensor) {
  return tensor ? to_f32_vector(tensor) : std::vector<float>();
}

Result<Linear> Packer::operator()(const Tensor& weight, const Tensor& bias) const {
  SLUICE_TRY(Linear linear, Linear::create(weight, bias, memory, team));
  weights.release(bias);
  if (linear.is_packed()) weights.release(weight);
  return linear;
}

std::vector<float> Packer::operator()(const Tensor& vector) const {
  auto copy = vector_or_empty(vector);
  weights.release(vector);
  return copy;
}

namespace {

// The formats of all of them are the same, but for those of the shared one.
void add_formats(const FeedForward& network, FormatSet& ffn, FormatSet& down) {
  ffn.add(formats_of({&network.gate, &network.up}));
  down.add(formats_of({&network.down}));
}

// The router's scale comes with a division by the root of d_model.
NormsBesideDense norms_beside_dense(const Packer& pack, const LayerWeights& w, const Linear& router) {
  NormsBesideDense norms{.router = pack(w.router_norm),
                         .experts = pack(w.experts_norm),
                         .experts_post = pack(w.experts_post_norm),
                         .dense_post = pack(w.dense_post_norm),
                         .router_formats = formats_of({&router})};
  for (float& weight : norms.router) weight /= std::sqrt(static_cast<float>(norms.router.size()));
  return norms;
}

Result<Mixture> make_mixture(const Packer& pack, const LayerWeights& w, const MixtureParameters& parameters) {
  Mixture mixture{.biases = pack(w.router_share_bias), .scales = pack(w.expert_scales), .rules = parameters};
  SLUICE_TRY(mixture.router, pack(w.router, w.router_logit_bias));
  if (parameters.beside_dense) mixture.beside_dense = norms_beside_dense(pack, w, mixture.router);
  for (int64_t i = 0; i < w.down_experts.n_matrices; ++i) {
    FeedForward network;
    const bool both = static_cast<bool>(w.gate_up_experts);
    const int64_t ff = parameters.d_ff;
    const Tensor gate = both ? w.gate_up_experts.matrix(i).rows(0, ff) : w.gate_experts.matrix(i);
    const Tensor up = both ? w.gate_up_experts.matrix(i).rows(ff, ff) : w.up_experts.matrix(i);
    const auto take = [&](const Tensor& matrix, const Tensor& bias) {
      return pack.experts_wait ? Linear::waiting(matrix, bias) : pack(matrix, bias);
    };
    SLUICE_TRY(network.gate, take(gate, w.gate_expert_biases.row(i)));
    SLUICE_TRY(network.up, take(up, w.up_expert_biases.row(i)));
    SLUICE_TRY(network.down, take(w.down_experts.matrix(i), w.down_expert_biases.row(i)));
    mixture.networks.push_back(std::move(network));
  }
  if (w.shared_router) {
    SLUICE_TRY(mixture.shared_router, pack(w.shared_router, {}));
  }
  if (!w.gate_shared) return mixture;
  FeedForward shared;
  SLUICE_TRY(shared.gate, pack(w.gate_shared, {}));
  SLUICE_TRY(shared.up, pack(w.up_shared, {}));
  SLUICE_TRY(shared.down, pack(w.down_shared, {}));
  mixture.networks.push_back(std::move(shared));
  return mixture;
}

Result<std::vector<Linear>> make_of_heads(const Packer& pack, const Tensor& matrices, FormatSet& formats) {
  std::vector<Linear> of_heads;
  for (int64_t head = 0; head < matrices.n_matrices; ++head) {
    SLUICE_TRY(Linear one, pack(matrices.matrix(head), {}));
    formats.add(one.format());
    of_heads.push_back(std::move(one));
  }
  return of_heads;
}

Result<LatentAttention> make_latent_attention(const Packer& pack, const LayerWeights& w) {
  LatentAttention latent{.q_a_norm = pack(w.q_a_norm), .kv_a_norm = pack(w.kv_a_norm)};
  if (w.q_a) {
    SLUICE_TRY(latent.q_a, pack(w.q_a, {}));
  }
  SLUICE_TRY(latent.q, pack(w.q_a ? w.q_b : w.q, {}));
  SLUICE_TRY(latent.kv_a, pack(w.kv_a, {}));
  SLUICE_TRY(latent.k_b, make_of_heads(pack, w.k_b, latent.k_b_formats));
  SLUICE_TRY(latent.v_b, make_of_heads(pack, w.v_b, latent.v_b_formats));
  latent.q_formats = formats_of({&latent.q});
  return latent;
}

Result<DeltaNet> make_delta_net(const Packer& pack, const LayerWeights& w) {
  DeltaNet delta = make_folding(w);
  SLUICE_TRY(delta.mixed, pack(w.mixed, {}));
  SLUICE_TRY(delta.output_gate, pack(w.output_gate, {}));
  SLUICE_TRY(delta.intake, pack(w.intake_and_keep ? w.intake_and_keep : w.intake, {}));
  if (w.keep) {
    SLUICE_TRY(delta.keep, pack(w.keep, {}));
  }
  return delta;
}

Result<PerLayerInput> make_per_layer_input(const Packer& pack, const LayerWeights& w) {
  PerLayerInput input{.post_norm = pack(w.per_layer_post_norm)};
  SLUICE_TRY(input.gate, pack(w.per_layer_gate, {}));
  SLUICE_TRY(input.out, pack(w.per_layer_out, {}));
  input.gate_formats = formats_of({&input.gate});
  input.out_formats = formats_of({&input.out});
  return input;
}

Result<FeedForward> make_feed_forward(const Packer& pack, const LayerWeights& w) {
  FeedForward network;
  SLUICE_TRY(network.gate, pack(w.gate, w.gate_bias));
  SLUICE_TRY(network.up, pack(w.up, w.up_bias));
  SLUICE_TRY(network.down, pack(w.down, w.down_bias));
  return network;
}

}  // namespace

Result<Layer> make_layer(const Packer& pack, const LayerWeights& w, KvLayer kv, const MixtureParameters& parameters) {
  Linear q, k, v;
  std::optional<LatentAttention> latent;
  std::optional<DeltaNet> delta;
  FormatSet qkv;
  if (w.mixed) {
    SLUICE_TRY(delta, make_delta_net(pack, w));
    qkv = formats_of({&delta->mixed, &delta->output_gate, &delta->intake});
    if (delta->keeps_apart) qkv.add(delta->keep.format());
  } else if (w.kv_a) {
    SLUICE_TRY(latent, make_latent_attention(pack, w));
    qkv = formats_of({latent->has_q_a() ? &latent->q_a : &latent->q, &latent->kv_a});
  } else {
    SLUICE_TRY(q, pack(w.q, w.q_bias));
    qkv = formats_of({&q});
    for (const auto& [matrix, weight, bias] : {std::tuple(&k, &w.k, &w.k_bias), std::tuple(&v, &w.v, &w.v_bias)}) {
      if (!*weight) continue;
      SLUICE_TRY(*matrix, pack(*weight, *bias));
      qkv.add(matrix->format());
    }
  }
  SLUICE_TRY(Linear attention_out, pack(w.attention_out, w.attention_out_bias));
  const FormatSet out = formats_of({&attention_out});
  FormatSet of_ffn, of_down;
  FeedForward ffn;
  std::optional<Mixture> mixture;
  if (w.router) {
    SLUICE_TRY(mixture, make_mixture(pack, w, parameters));
    if (!mixture->beside_dense) of_ffn = formats_of({&mixture->router});
    if (mixture->rules.is_shared_gated) of_ffn.add(formats_of({&mixture->shared_router}));
    for (const FeedForward& network : mixture->networks) add_formats(network, mixture->formats, of_down);
    if (!mixture->beside_dense) of_ffn.add(mixture->formats);
  }
  if (w.gate) {
    SLUICE_TRY(ffn, make_feed_forward(pack, w));
    add_formats(ffn, of_ffn, of_down);
  }
  std::optional<PerLayerInput> per_layer;
  if (w.per_layer_gate) {
    SLUICE_TRY(per_layer, make_per_layer_input(pack, w));
  }
  return Layer{.attention_norm = pack(w.attention_norm),
               .ffn_norm = pack(w.ffn_norm),
               .attention_post_norm = pack(w.attention_post_norm),
               .ffn_post_norm = pack(w.ffn_post_norm),
               .q_norm = pack(w.q_norm),
               .k_norm = pack(w.k_norm),
               .sinks = pack(w.sinks),
               .q = std::move(q),
               .k = std::move(k),
               .v = std::move(v),
               .latent = std::move(latent),
               .delta = std::move(delta),
               .attention_out = std::move(attention_out),
               .ffn = std::move(ffn),
               .mixture = std::move(mixture),
               .qkv_formats = qkv,
               .attention_out_formats = out,
               .ffn_formats = of_ffn,
               .down_formats = of_down,
               .per_layer = std::move(per_layer),
               .output_scale = w.output_scale ? pack(w.output_scale).front() : 1.0f,
               .kv = std::move(kv)};
}

DeltaNet make_folding(const LayerWeights& w) {
  DeltaNet delta{.keep_bias = vector_or_empty(w.keep_bias),
                 .keep_factor = vector_or_empty(w.keep_factor),
                 .norm = vector_or_empty(w.state_norm),
                 .keeps_apart = static_cast<bool>(w.keep)};
  const int64_t taps = w.convolution.ne[0], width = w.convolution.ne[1];
  delta.convolution.resize(static_cast<size_t>(taps * width));
  for (int64_t i = 0; i < width; ++i) {
    const std::vector<float> of_channel = to_f32_vector(w.convolution.row(i));
    for (int64_t j = 0; j < taps; ++j)
      delta.convolution[static_cast<size_t>(j * width + i)] = of_channel[static_cast<size_t>(j)];
  }
  return delta;
}

Result<Head> make_head(const Packer& pack) {
  SLUICE_TRY(Linear output, pack(pack.weights.output, pack.weights.output_bias));
  const FormatSet formats = formats_of({&output});
  return Head{pack(pack.weights.output_norm), std::move(output), formats};
}

Result<PerLayerEmbedding> make_per_layer_embedding(const Packer& pack, const HyperParameters& hparams) {
  const StageWeights& w = pack.weights;
  const int32_t width = hparams.d_per_layer;
  PerLayerEmbedding embedding{
      .table = w.per_layer_embedding, .first = w.range.first, .width = width, .norm = pack(w.per_layer_norm)};
  const Tensor projection =
      w.per_layer_projection.rows(int64_t{w.range.first} * width, int64_t{w.range.count()} * width);
  SLUICE_TRY(embedding.projection, pack(projection, {}));
  embedding.formats = formats_of({&embedding.projection});
  return embedding;
}

}  // namespace sluice

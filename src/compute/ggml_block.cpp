#include "compute/ggml_block.h"

#include <cmath>
#include <limits>

#include "compute/block.h"

namespace sluice {

namespace {

// The same memory, as rows of another type. REQUIRES: its rows lie one behind another.
ggml_tensor* reread(ggml_context* context, ggml_tensor* matrix, ggml_type type) {
  ggml_tensor* made = ggml_view_2d(context, matrix, matrix->ne[0], matrix->ne[1], matrix->nb[1], 0);
  made->type = type;
  made->nb[0] = ggml_type_size(type);
  made->ne[0] = static_cast<int64_t>(matrix->nb[1] / made->nb[0]);
  return made;
}

}  // namespace

ggml_tensor* GgmlBlock::product(const GgmlLinear& weight) const {
  ggml_tensor* y = ggml_mul_mat(context_, weight.weight, input_);
  return weight.bias == nullptr ? y : ggml_add(context_, y, weight.bias);
}

ggml_tensor* GgmlBlock::capped(ggml_tensor* x, float cap) const {
  if (cap == 0.0F) return x;
  return ggml_scale(context_, ggml_tanh(context_, ggml_scale(context_, x, 1.0F / cap)), cap);
}

ggml_tensor* GgmlBlock::normed(ggml_tensor* x, ggml_tensor* weight) const {
  return ggml_mul(context_, ggml_rms_norm(context_, x, h_.norm_epsilon), weight);
}

void GgmlBlock::add(ggml_tensor* y, ggml_tensor* norm, States x) const {
  *x = ggml_add(context_, norm == nullptr ? y : normed(y, norm), *x);
}

void GgmlBlock::normalise(States x, ggml_tensor* weight, GgmlLayer::NoFormats) { input_ = normed(*x, weight); }

void GgmlBlock::project(const GgmlLayer& layer) {
  if (layer.latent) return project(*layer.latent);
  q_ = product(layer.q);
  if (h_.gated_attention) {
    gates_ = ggml_sigmoid(context_, part_of_queries(q_, 1));
    q_ = part_of_queries(q_, 0);
  }
  if (layer.k.weight == nullptr) return;
  k_ = product(layer.k);
  v_ = layer.v.weight == nullptr ? k_ : product(layer.v);
}

// [rows, heads * head_dim], of queries each of which comes before its gate.
ggml_tensor* GgmlBlock::part_of_queries(ggml_tensor* both, int64_t part) const {
  const size_t head = ggml_row_size(both->type, h_.head_dim);
  ggml_tensor* x = ggml_view_3d(context_, both, h_.head_dim, h_.n_heads, rows(), 2 * head, both->nb[1],
                                static_cast<size_t>(part) * head);
  return ggml_cont_2d(context_, x, int64_t{h_.head_dim} * h_.n_heads, rows());
}

ggml_tensor* GgmlBlock::projected(const GgmlLayer& layer, States x) {
  const GgmlDeltaNet& delta = *layer.delta;
  normalise(x, layer.attention_norm);
  ggml_tensor* all = ggml_concat(context_, product(delta.mixed), product(delta.output_gate), 0);
  all = ggml_concat(context_, all, product(delta.intake), 0);
  return delta.keep.weight == nullptr ? all : ggml_concat(context_, all, product(delta.keep), 0);
}

void GgmlBlock::go_on_after_folding(const GgmlLayer& layer, States x) {
  input_ = inputs_.attended;
  block_after_attention(*this, layer, x);
}

// k_ becomes the latents, each with the part of the keys that turns.
void GgmlBlock::project(const GgmlLatentAttention& latent) {
  k_ = product(latent.kv_a);
  if (latent.q_a.weight != nullptr) input_ = normed(product(latent.q_a), latent.q_a_norm);
  q_ = product(latent.q);
}

// Factors count where all is seen.
ggml_tensor* GgmlBlock::rotate(ggml_tensor* x, bool has_window) const {
  const RopeParameters& rope = has_window ? h_.window_rope : h_.rope;
  const int pairing = rope.pairing == RopeParameters::Pairing::kAdjacent ? GGML_ROPE_TYPE_NORMAL : GGML_ROPE_TYPE_NEOX;
  const float scale = rope.scaling == RopeParameters::Scaling::kNone ? 1.0F : 1.0F / rope.factor;
  return ggml_rope_ext(context_, x, inputs_.positions, has_window ? nullptr : rope_factors_, rope.n_dims, pairing,
                       rope.original_context, rope.base, scale, rope.extrapolation_mix, rope.attention_factor,
                       rope.beta_fast, rope.beta_slow);
}

ggml_tensor* GgmlBlock::turn(const GgmlLayer& layer, ggml_tensor* heads, int32_t n, ggml_tensor* norm) const {
  ggml_tensor* x = ggml_reshape_3d(context_, heads, layer.head_dim, n, rows());
  if (norm != nullptr) x = normed(x, norm);
  return rotate(x, layer.has_window);
}

// The whole of the cells, once these rows have been written.
ggml_tensor* GgmlBlock::keep(ggml_tensor* cells, ggml_tensor* rows) const {
  return ggml_set_rows(context_, cells, ggml_reshape_2d(context_, rows, cells->ne[0], this->rows()), inputs_.written);
}

void GgmlBlock::turn_and_keep(const GgmlLayer& layer) {
  if (layer.latent) return turn_and_keep(*layer.latent, layer);
  q_ = turn(layer, q_, h_.n_heads, layer.q_norm);
  keys_ = layer.keys;
  values_ = layer.values;
  if (layer.k.weight == nullptr) return;
  k_ = turn(layer, k_, layer.n_kv_heads, layer.k_norm);
  if (h_.normed_values)
    v_ = ggml_rms_norm(context_, ggml_reshape_3d(context_, v_, layer.head_dim, layer.n_kv_heads, rows()),
                       h_.norm_epsilon);
  keys_ = keep(layer.keys, k_);
  values_ = keep(layer.values, v_);
}

void GgmlBlock::turn_and_keep(const GgmlLatentAttention& latent, const GgmlLayer& layer) {
  const int64_t rank = h_.latent.rank, key = h_.latent.key, turned = h_.rope.n_dims, n_heads = h_.n_heads;
  const auto part = [&](ggml_tensor* x, int64_t n, int64_t width, int64_t from, int64_t size) {
    const size_t head = ggml_row_size(x->type, width);
    return ggml_view_3d(context_, x, size, n, rows(), head, x->nb[1], ggml_row_size(x->type, from));
  };
  ggml_tensor* kept = normed(part(k_, 1, rank + turned, 0, rank), latent.kv_a_norm);
  k_ = ggml_concat(context_, kept, rotate(part(k_, 1, rank + turned, rank, turned)), 0);
  ggml_tensor* queries = ggml_permute(context_, part(q_, n_heads, key + turned, 0, key), 0, 2, 1, 3);
  queries = ggml_permute(context_, ggml_mul_mat(context_, latent.k_b, queries), 0, 2, 1, 3);
  q_ = ggml_concat(context_, queries, rotate(part(q_, n_heads, key + turned, key, turned)), 0);
  keys_ = values_ = keep(layer.keys, k_);
}

// [rows, heads * value], of the means of latents that attention has left.
ggml_tensor* GgmlBlock::values_of(const GgmlLatentAttention& latent) const {
  ggml_tensor* x = ggml_reshape_3d(context_, input_, h_.latent.rank, h_.n_heads, rows());
  x = ggml_mul_mat(context_, latent.v_b, ggml_permute(context_, x, 0, 2, 1, 3));
  x = ggml_cont(context_, ggml_permute(context_, x, 0, 2, 1, 3));
  return ggml_reshape_2d(context_, x, int64_t{h_.latent.value} * h_.n_heads, rows());
}

// The queries of attention. With paths: [queries, heads, 1, head_dim], each a sequence of its own; else
// [heads, rows, head_dim].
ggml_tensor* GgmlBlock::asked(int32_t head_dim) const {
  if (inputs_.paths == nullptr) return ggml_permute(context_, q_, 0, 2, 1, 3);
  ggml_tensor* q = q_;
  if (inputs_.queries != nullptr)
    q = ggml_get_rows(context_, ggml_reshape_2d(context_, q, int64_t{head_dim} * h_.n_heads, rows()), inputs_.queries);
  return ggml_reshape_4d(context_, q, head_dim, 1, h_.n_heads, inputs_.mask->ne[3]);
}

// [queries * n, kv_heads * head_dim]: the cells of each query's path in its order.
ggml_tensor* GgmlBlock::gathered(ggml_tensor* cells) const {
  if (cells->type != GGML_TYPE_F16 || !inputs_.gathers_pairs) return ggml_get_rows(context_, cells, inputs_.paths);
  ggml_tensor* pairs = ggml_get_rows(context_, reread(context_, cells, GGML_TYPE_I32), inputs_.paths);
  return reread(context_, pairs, GGML_TYPE_F16);
}

// The keys, or values, that they see. With paths: [queries, kv_heads, n, head_dim], each query's own in the order of
// its path, of a chain [1, …]; else [kv_heads, n, head_dim] for all, as they are kept.
ggml_tensor* GgmlBlock::seen(const GgmlLayer& layer, ggml_tensor* cells) const {
  const int64_t n = inputs_.mask->ne[0], head_dim = layer.head_dim, n_heads = layer.n_kv_heads;
  const int64_t n_paths = inputs_.is_chain ? 1 : inputs_.mask->ne[3];
  ggml_tensor* all =
      inputs_.paths == nullptr
          ? ggml_view_3d(context_, cells, head_dim, n_heads, n, ggml_row_size(cells->type, head_dim), cells->nb[1], 0)
          : ggml_reshape_4d(context_, gathered(cells), head_dim, n_heads, n, n_paths);
  return ggml_permute(context_, all, 0, 2, 1, 3);
}

// What every query of a group sees, who all see the same: [together, …].
ggml_tensor* GgmlBlock::for_all(ggml_tensor* chain) const {
  ggml_tensor* made = ggml_view_4d(context_, chain, chain->ne[0], chain->ne[1], chain->ne[2], 1, chain->nb[1],
                                   chain->nb[2], chain->nb[3], 0);
  made->ne[3] = inputs_.together;
  made->nb[3] = 0;
  return made;
}

// Those that go through attention together.
ggml_tensor* GgmlBlock::group(ggml_tensor* of_queries, int64_t first) const {
  if (inputs_.paths == nullptr || of_queries->ne[3] == inputs_.together) return of_queries;
  return ggml_view_4d(context_, of_queries, of_queries->ne[0], of_queries->ne[1], of_queries->ne[2], inputs_.together,
                      of_queries->nb[1], of_queries->nb[2], of_queries->nb[3],
                      static_cast<size_t>(first) * of_queries->nb[3]);
}

void GgmlBlock::attend(const GgmlLayer& layer) {
  ggml_tensor* mask = layer.has_window ? inputs_.window_mask : inputs_.mask;
  const float scale =
      h_.attention_scale > 0.0F ? h_.attention_scale : 1.0F / std::sqrt(static_cast<float>(layer.head_dim));
  const int64_t value_dim = h_.latent ? h_.latent.rank : layer.head_dim;
  ggml_tensor* keys = seen(layer, keys_);
  ggml_tensor* values = values_ != keys_ ? seen(layer, values_)
                                         : ggml_view_4d(context_, keys, value_dim, keys->ne[1], keys->ne[2],
                                                        keys->ne[3], keys->nb[1], keys->nb[2], keys->nb[3], 0);
  ggml_tensor *queries = asked(layer.head_dim), *out = nullptr;
  if (inputs_.is_chain) keys = for_all(keys), values = for_all(values);
  const int64_t n_queries = queries->ne[3], together = inputs_.paths == nullptr ? n_queries : inputs_.together;
  for (int64_t first = 0; first < n_queries; first += together) {
    ggml_tensor* one = ggml_flash_attn_ext(
        context_, group(queries, first), inputs_.is_chain ? keys : group(keys, first),
        inputs_.is_chain ? values : group(values, first), group(mask, first), scale, 0.0F, h_.attention_cap);
    if (layer.sinks != nullptr) ggml_flash_attn_ext_add_sinks(one, layer.sinks);
    ggml_prec_set_acc(one, GGML_PREC_F32);
    out = out == nullptr ? one : ggml_concat(context_, out, one, 3);
  }
  const int64_t width = value_dim * h_.n_heads;
  input_ = ggml_view_2d(context_, out, width, rows(), ggml_row_size(out->type, width), 0);
  if (gates_ != nullptr) input_ = ggml_mul(context_, input_, gates_);
}

ggml_tensor* GgmlBlock::attention(const GgmlLayer& layer, ggml_tensor* queries, ggml_tensor* keys,
                                  ggml_tensor* values) {
  q_ = queries;
  keys_ = keys;
  values_ = values;
  attend(layer);
  return input_;
}

void GgmlBlock::add_attended(const GgmlLayer& layer, States x) {
  if (layer.latent) input_ = values_of(*layer.latent);
  add(product(layer.attention_out), layer.attention_post_norm, x);
}

ggml_tensor* GgmlBlock::gated(ggml_tensor* gate, ggml_tensor* up) const {
  constexpr float kSteepness = 1.702F, kLimit = 7.0F;
  switch (h_.activation) {
    case Activation::kSilu:
      return ggml_swiglu_split(context_, gate, up);
    case Activation::kClampedSilu:
      return ggml_swiglu_oai(context_, gate, up, kSteepness, kLimit);
    case Activation::kGelu:
      return ggml_geglu_split(context_, gate, up);
  }
  SLUICE_CHECK(false, "an activation");
}

void GgmlBlock::gate(const GgmlLayer& layer) {
  ggml_tensor *gate = product(layer.gate), *up = product(layer.up);
  input_ = gated(gate, up);
}

void GgmlBlock::add_gated(const GgmlLayer& layer, States x) { add(product(layer.down), layer.ffn_post_norm, x); }

// Leaves the shares of the best groups' experts, and makes the others' minus infinity. shares: [rows, experts].
ggml_tensor* GgmlBlock::of_best_groups(ggml_tensor* shares) const {
  constexpr int kBest = 2;  // of a group, that count
  const int64_t n = h_.mixture.n_groups, size = h_.mixture.n_experts / n, n_rows = shares->ne[1];
  ggml_tensor* groups = ggml_reshape_3d(context_, shares, size, n, n_rows);
  ggml_tensor* best = ggml_get_rows(context_, ggml_reshape_4d(context_, groups, 1, size, n, n_rows),
                                    ggml_argsort_top_k(context_, groups, kBest));
  ggml_tensor* scores = ggml_sum_rows(context_, ggml_reshape_3d(context_, best, kBest, n, n_rows));
  ggml_tensor* used =
      ggml_argsort_top_k(context_, ggml_reshape_2d(context_, scores, n, n_rows), h_.mixture.n_groups_used);
  ggml_tensor* none = ggml_fill(context_, groups, -std::numeric_limits<float>::infinity());
  return ggml_reshape_2d(context_, ggml_set_rows(context_, none, ggml_get_rows(context_, groups, used), used), size * n,
                         n_rows);
}

// chosen becomes [rows, used] i32. Their weights: [rows, used, 1].
ggml_tensor* GgmlBlock::expert_weights(const GgmlMixture& mixture, ggml_tensor*& chosen) const {
  constexpr float kLeastSum = 6.103515625e-5F;
  const MixtureParameters& m = h_.mixture;
  ggml_tensor* logits = product(mixture.router);
  const int64_t n_rows = logits->ne[1];
  using Gating = MixtureParameters::Gating;
  ggml_tensor* shares = m.gating == Gating::kSoftmax   ? ggml_soft_max(context_, logits)
                        : m.gating == Gating::kSigmoid ? ggml_sigmoid(context_, logits)
                                                       : logits;
  ggml_tensor* chosen_by = mixture.biases == nullptr ? shares : ggml_add(context_, shares, mixture.biases);
  if (m.n_groups > 1) chosen_by = of_best_groups(chosen_by);
  chosen = ggml_argsort_top_k(context_, chosen_by, m.n_used);
  ggml_tensor* weights = ggml_get_rows(context_, ggml_reshape_3d(context_, shares, 1, m.n_experts, n_rows), chosen);
  if (m.gating == Gating::kSoftmaxOfChosen) {
    weights = ggml_soft_max(context_, ggml_reshape_2d(context_, weights, m.n_used, n_rows));
    weights = ggml_reshape_3d(context_, weights, 1, m.n_used, n_rows);
  }
  if (m.normalised) {
    weights = ggml_reshape_2d(context_, weights, m.n_used, n_rows);
    weights = ggml_div(
        context_, weights,
        ggml_clamp(context_, ggml_sum_rows(context_, weights), kLeastSum, std::numeric_limits<float>::infinity()));
    weights = ggml_reshape_3d(context_, weights, 1, m.n_used, n_rows);
  }
  if (m.scale != 1.0F) weights = ggml_scale(context_, weights, m.scale);
  graph_.put_next(weights);
  if (mixture.scales == nullptr) return weights;
  ggml_tensor* scales =
      ggml_repeat_4d(context_, ggml_reshape_2d(context_, mixture.scales, 1, m.n_experts), 1, m.n_experts, n_rows, 1);
  return ggml_mul(context_, weights, ggml_get_rows(context_, scales, chosen));
}

ggml_tensor* GgmlBlock::shared_expert(const GgmlMixture& mixture) {
  ggml_tensor* const x = input_;
  input_ = gated(product(mixture.gate_shared), product(mixture.up_shared));
  ggml_tensor* y = product(mixture.down_shared);
  input_ = x;
  if (!h_.mixture.is_shared_gated) return y;
  return ggml_mul(context_, y, ggml_sigmoid(context_, product(mixture.shared_router)));
}

// What the chosen experts give of the input, weighed, and `sum`, if there is one: [rows, d_model].
ggml_tensor* GgmlBlock::add_experts(const GgmlMixture& mixture, ggml_tensor* chosen, ggml_tensor* weights,
                                    ggml_tensor* sum) const {
  ggml_tensor* in = ggml_reshape_3d(context_, input_, input_->ne[0], 1, input_->ne[1]);
  const auto of_chosen = [&](const GgmlLinear& matrices, ggml_tensor* of) {
    ggml_tensor* out = ggml_mul_mat_id(context_, matrices.weight, of, chosen);
    return matrices.bias == nullptr ? out : ggml_add_id(context_, out, matrices.bias, chosen);
  };
  const auto half = [&](ggml_tensor* both, int64_t which) {
    const int64_t n = both->ne[0] / 2;
    return ggml_view_3d(context_, both, n, both->ne[1], both->ne[2], both->nb[1], both->nb[2],
                        ggml_row_size(both->type, which * n));
  };
  ggml_tensor* both = mixture.gate_up.weight == nullptr ? nullptr : of_chosen(mixture.gate_up, in);
  ggml_tensor* y = both != nullptr ? gated(half(both, 0), half(both, 1))
                                   : gated(of_chosen(mixture.gate, in), of_chosen(mixture.up, in));
  y = ggml_mul(context_, of_chosen(mixture.down, y), weights);  // [rows, used, d_model]
  for (int64_t i = y->ne[1]; i-- > 0;) {
    ggml_tensor* one = ggml_view_2d(context_, y, y->ne[0], y->ne[2], y->nb[2], static_cast<size_t>(i) * y->nb[1]);
    sum = sum == nullptr ? one : ggml_add(context_, sum, one);
  }
  return sum;
}

void GgmlBlock::add_mixture(const GgmlLayer& layer, States x) {
  const GgmlMixture& mixture = *layer.mixture;
  if (mixture.beside_dense) return add_beside_dense(layer, x);
  ggml_tensor* chosen = nullptr;
  ggml_tensor* weights = expert_weights(mixture, chosen);
  ggml_tensor* shared = mixture.gate_shared.weight == nullptr ? nullptr : shared_expert(mixture);
  *x = ggml_add(context_, add_experts(mixture, chosen, weights, shared), *x);
}

// The router's scale comes with a division by the root of d_model.
void GgmlBlock::add_beside_dense(const GgmlLayer& layer, States x) {
  const GgmlMixture& mixture = *layer.mixture;
  const GgmlNormsBesideDense& norms = *mixture.beside_dense;
  gate(layer);
  ggml_tensor* dense = normed(product(layer.down), norms.dense_post);
  normalise(x, norms.router);
  input_ = ggml_scale(context_, input_, 1.0F / std::sqrt(static_cast<float>(h_.d_model)));
  ggml_tensor* chosen = nullptr;
  ggml_tensor* weights = expert_weights(mixture, chosen);
  normalise(x, norms.experts);
  ggml_tensor* experts = normed(add_experts(mixture, chosen, weights, nullptr), norms.experts_post);
  add(ggml_add(context_, experts, dense), layer.ffn_post_norm, x);
}

// p_l of compute/per_layer_embedding.h: [rows, n].
ggml_tensor* GgmlBlock::layer_input(const GgmlPerLayerInput& per_layer) const {
  const float of_projection = 1.0F / std::sqrt(static_cast<float>(h_.d_model)), of_both = 1.0F / std::sqrt(2.0F);
  ggml_tensor* p = ggml_mul_mat(context_, per_layer.projection.weight, inputs_.begins);
  p = normed(ggml_scale(context_, p, of_projection), per_layer.norm);
  const ggml_tensor& tables = *inputs_.tables;
  ggml_tensor* t =
      ggml_view_2d(context_, inputs_.tables, tables.ne[0], rows(), tables.nb[2], per_layer.at * tables.nb[1]);
  return ggml_scale(context_, ggml_add(context_, p, t), of_both);
}

// What compute/per_layer_embedding.h says, and the layer's scale.
void GgmlBlock::finish(const GgmlLayer& layer, States x) {
  if (layer.per_layer) {
    input_ = *x;
    input_ = gated(product(layer.per_layer->gate), layer_input(*layer.per_layer));
    add(product(layer.per_layer->out), layer.per_layer->post_norm, x);
  }
  if (layer.output_scale != 1.0F) *x = ggml_scale(context_, *x, layer.output_scale);
}

}  // namespace sluice

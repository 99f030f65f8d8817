#include "compute/ggml_block.h"

#include <cmath>

namespace sluice {

ggml_tensor* GgmlBlock::product(const GgmlLinear& weight) const {
  ggml_tensor* y = ggml_mul_mat(context_, weight.weight, input_);
  return weight.bias == nullptr ? y : ggml_add(context_, y, weight.bias);
}

void GgmlBlock::normalise(States x, ggml_tensor* weight, GgmlLayer::NoFormats) {
  input_ = ggml_mul(context_, ggml_rms_norm(context_, *x, h_.norm_epsilon), weight);
}

void GgmlBlock::project(const GgmlLayer& layer) {
  q_ = product(layer.q);
  k_ = product(layer.k);
  v_ = product(layer.v);
}

ggml_tensor* GgmlBlock::turn(ggml_tensor* heads, int32_t n, ggml_tensor* norm) const {
  const RopeParameters& rope = h_.rope;
  ggml_tensor* x = ggml_reshape_3d(context_, heads, h_.head_dim, n, rows());
  if (norm != nullptr) x = ggml_mul(context_, ggml_rms_norm(context_, x, h_.norm_epsilon), norm);
  const int pairing = rope.pairing == RopeParameters::Pairing::kAdjacent ? GGML_ROPE_TYPE_NORMAL : GGML_ROPE_TYPE_NEOX;
  const float scale = rope.scaling == RopeParameters::Scaling::kNone ? 1.0F : 1.0F / rope.factor;
  return ggml_rope_ext(context_, x, inputs_.positions, rope_factors_, rope.n_dims, pairing, rope.original_context,
                       rope.base, scale, rope.extrapolation_mix, rope.attention_factor, rope.beta_fast, rope.beta_slow);
}

// The whole of the cells, once these rows have been written.
ggml_tensor* GgmlBlock::keep(ggml_tensor* cells, ggml_tensor* rows) const {
  return ggml_set_rows(context_, cells, ggml_reshape_2d(context_, rows, cells->ne[0], this->rows()), inputs_.written);
}

void GgmlBlock::turn_and_keep(const GgmlLayer& layer) {
  q_ = turn(q_, h_.n_heads, layer.q_norm);
  k_ = turn(k_, h_.n_kv_heads, layer.k_norm);
  keys_ = keep(layer.keys, k_);
  values_ = keep(layer.values, v_);
}

// The queries of attention. With paths: [queries, heads, 1, head_dim], each a sequence of its own; else
// [heads, rows, head_dim].
ggml_tensor* GgmlBlock::asked() const {
  if (inputs_.paths == nullptr) return ggml_permute(context_, q_, 0, 2, 1, 3);
  ggml_tensor* q = q_;
  if (inputs_.queries != nullptr)
    q = ggml_get_rows(context_, ggml_reshape_2d(context_, q, int64_t{h_.head_dim} * h_.n_heads, rows()),
                      inputs_.queries);
  return ggml_reshape_4d(context_, q, h_.head_dim, 1, h_.n_heads, inputs_.mask->ne[3]);
}

// The keys, or values, that they see. With paths: [queries, kv_heads, n, head_dim] f32, each query's own in the order
// of its path; else [kv_heads, n, head_dim] for all, as they are kept.
ggml_tensor* GgmlBlock::seen(ggml_tensor* cells) const {
  const int64_t n = inputs_.mask->ne[0];
  ggml_tensor* all = inputs_.paths == nullptr ? ggml_view_3d(context_, cells, h_.head_dim, h_.n_kv_heads, n,
                                                             ggml_row_size(cells->type, h_.head_dim), cells->nb[1], 0)
                                              : ggml_reshape_4d(context_, ggml_get_rows(context_, cells, inputs_.paths),
                                                                h_.head_dim, h_.n_kv_heads, n, inputs_.mask->ne[3]);
  return ggml_permute(context_, all, 0, 2, 1, 3);
}

void GgmlBlock::attend(const GgmlLayer&) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(h_.head_dim));
  ggml_tensor* out =
      ggml_flash_attn_ext(context_, asked(), seen(keys_), seen(values_), inputs_.mask, scale, 0.0F, 0.0F);
  ggml_prec_set_acc(out, GGML_PREC_F32);
  const int64_t width = int64_t{h_.head_dim} * h_.n_heads;
  input_ = ggml_view_2d(context_, out, width, rows(), ggml_row_size(out->type, width), 0);
}

void GgmlBlock::add_attended(const GgmlLayer& layer, States x) {
  *x = ggml_add(context_, product(layer.attention_out), *x);
}

void GgmlBlock::gate(const GgmlLayer& layer) {
  ggml_tensor *gate = product(layer.gate), *up = product(layer.up);
  input_ = ggml_swiglu_split(context_, gate, up);
}

void GgmlBlock::add_gated(const GgmlLayer& layer, States x) { *x = ggml_add(context_, product(layer.down), *x); }

}  // namespace sluice

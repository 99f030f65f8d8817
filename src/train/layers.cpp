#include "train/layers.h"

#include <cmath>
#include <limits>

namespace sluice {

LayerShape layer_shape(const HyperParameters& target) {
  return {.d_model = target.d_model,
          .n_heads = target.n_heads,
          .n_kv_heads = target.n_kv_heads,
          .head_dim = target.head_dim,
          .d_ff = target.d_ff,
          .epsilon = target.norm_epsilon,
          .rope_base = target.rope.base,
          .rope_halves = target.rope.pairing == RopeParameters::Pairing::kHalves};
}

torch::Tensor product(const torch::Tensor& x, const torch::Tensor& weight) { return torch::matmul(x, weight.t()); }

torch::Tensor heads(const torch::Tensor& rows, const torch::Tensor& weight, int64_t n_heads) {
  auto shape = rows.sizes().vec();
  shape.back() = n_heads;
  shape.push_back(weight.size(0) / n_heads);
  return product(rows, weight).reshape(shape);
}

torch::Tensor attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                        const torch::Tensor& mask) {
  const int64_t n = q.size(0), n_keys = k.size(0), kv_heads = k.size(1), head_dim = q.size(2);
  const int64_t group = q.size(1) / kv_heads;
  // [kv_heads, group * Q, head_dim] x [kv_heads, head_dim, K]
  const auto queries =
      q.reshape({n, kv_heads, group, head_dim}).permute({1, 2, 0, 3}).reshape({kv_heads, group * n, head_dim});
  const auto scores = torch::bmm(queries, k.permute({1, 2, 0})) / std::sqrt(static_cast<double>(head_dim));
  const auto weights = torch::softmax(scores.view({kv_heads, group, n, n_keys}) + mask, -1);
  const auto sums = torch::bmm(weights.view({kv_heads, group * n, n_keys}), v.permute({1, 0, 2}));
  return sums.view({kv_heads, group, n, head_dim}).permute({2, 0, 1, 3}).reshape({n, kv_heads * group * head_dim});
}

torch::Tensor mask_of(const torch::Tensor& sees) {
  return torch::zeros(sees.sizes(), torch::kFloat)
      .masked_fill(sees.logical_not(), -std::numeric_limits<float>::infinity());
}

torch::Tensor add_feed_forward(const torch::Tensor& x, const Parameters& p, const std::string& blk,
                               const LayerShape& shape) {
  const auto n = rms_norm(x, p[blk + "ffn_norm.weight"], shape.epsilon);
  const auto gate = torch::silu(product(n, p[blk + "ffn_gate.weight"]));
  return x + product(gate * product(n, p[blk + "ffn_up.weight"]), p[blk + "ffn_down.weight"]);
}

torch::Tensor decoder_layer(const torch::Tensor& x, const torch::Tensor& positions, const torch::Tensor& mask,
                            const Parameters& p, const std::string& blk, const LayerShape& shape) {
  return decoder_layer(
      x, rms_norm(x, p[blk + "attn_norm.weight"], shape.epsilon), positions,
      [&](const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) { return attention(q, k, v, mask); },
      p, blk, shape);
}

torch::Tensor decoder_layer(const torch::Tensor& x, const torch::Tensor& inputs, const torch::Tensor& positions,
                            const Attend& attend, const Parameters& p, const std::string& blk,
                            const LayerShape& shape) {
  const auto q = turn(heads(inputs, p[blk + "attn_q.weight"], shape.n_heads), positions, shape);
  const auto k = turn(heads(inputs, p[blk + "attn_k.weight"], shape.n_kv_heads), positions, shape);
  const auto v = heads(inputs, p[blk + "attn_v.weight"], shape.n_kv_heads);
  return add_feed_forward(x + product(attend(q, k, v), p[blk + "attn_output.weight"]), p, blk, shape);
}

namespace {

constexpr const char* kLayerTensors[] = {"attn_norm", "attn_q",   "attn_k", "attn_v",  "attn_output",
                                         "ffn_norm",  "ffn_gate", "ffn_up", "ffn_down"};

std::vector<int64_t> shape_of(const std::string& tensor, const LayerShape& s) {
  if (tensor == "attn_norm" || tensor == "ffn_norm") return {s.d_model};
  if (tensor == "attn_q") return {s.n_heads * s.head_dim, s.d_model};
  if (tensor == "attn_k" || tensor == "attn_v") return {s.n_kv_heads * s.head_dim, s.d_model};
  if (tensor == "attn_output") return {s.d_model, s.n_heads * s.head_dim};
  if (tensor == "ffn_down") return {s.d_model, s.d_ff};
  return {s.d_ff, s.d_model};
}

}  // namespace

std::string layer_tensor(int64_t layer, const std::string& tensor) {
  return "blk." + std::to_string(layer) + "." + tensor + ".weight";
}

void add_layer(Parameters& parameters, int64_t i, const LayerShape& shape, const TargetTensors& target, int64_t layer) {
  for (const char* tensor : kLayerTensors)
    parameters.add(layer_tensor(i, tensor),
                   to_tensor(target.floats(layer_tensor(layer, tensor)), shape_of(tensor, shape)));
}

void add_random_layer(Parameters& parameters, int64_t i, const LayerShape& shape) {
  for (const std::string tensor : kLayerTensors) {
    const auto sizes = shape_of(tensor, shape);
    const bool ends_branch = tensor == "attn_output" || tensor == "ffn_down";
    parameters.add(layer_tensor(i, tensor),
                   sizes.size() == 1 ? torch::ones(sizes) : random_matrix(sizes[0], sizes[1], ends_branch ? 0.3 : 1.0));
  }
}

torch::Tensor random_matrix(int64_t n_out, int64_t n_in, double scale) {
  return torch::randn({n_out, n_in}) * (scale / std::sqrt(static_cast<double>(n_in)));
}

}  // namespace sluice

// The parts of a decoder layer of the llama family, as differentiable functions of named parameters.
#pragma once

#include <functional>

#include "train/elementwise.h"
#include "train/parameters.h"

namespace sluice {

// The shape of a head's layers: the target's, unless a test says otherwise.
struct LayerShape {
  int64_t d_model = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, d_ff = 0;
  double epsilon = 1e-5;
  double rope_base = 10000.0;
  bool rope_halves = false;  // else adjacent pairs turn together
  int64_t group() const { return n_heads / n_kv_heads; }
};
LayerShape layer_shape(const HyperParameters& target);

// x: [..., n_in], weight: [n_out, n_in].
torch::Tensor product(const torch::Tensor& x, const torch::Tensor& weight);

// x: [..., heads, head_dim]; positions: [...] (i64), one for each x[...].
inline torch::Tensor turn(const torch::Tensor& x, const torch::Tensor& positions, const LayerShape& shape) {
  return turn(x, positions, shape.rope_base, shape.rope_halves);
}

// Keys and values of rows, or their queries; rows are [..., d_model] after the norm.
torch::Tensor heads(const torch::Tensor& rows, const torch::Tensor& weight, int64_t n_heads);

// Softmax attention with grouped heads. q: [Q, heads, head_dim]; k, v: [K, kv_heads, head_dim]; mask: [Q, K], 0 where a
// query sees a key and -inf where not; every query sees a key. Gives [Q, heads * head_dim].
torch::Tensor attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                        const torch::Tensor& mask);

// 0 where `sees`, else -inf.
torch::Tensor mask_of(const torch::Tensor& sees);

// x + down(silu(gate(norm x)) * up(norm x)), with parameters blk.i.ffn_*.
torch::Tensor add_feed_forward(const torch::Tensor& x, const Parameters& parameters, const std::string& blk,
                               const LayerShape& shape);

// A whole layer blk.i over rows [N, d_model] at `positions` [N].
torch::Tensor decoder_layer(const torch::Tensor& x, const torch::Tensor& positions, const torch::Tensor& mask,
                            const Parameters& parameters, const std::string& blk, const LayerShape& shape);

// The same with an attention of the caller's, from q, k and v as `attention` takes them. `inputs`: what they are
// computed from, of the rows after their norm.
using Attend = std::function<torch::Tensor(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v)>;
torch::Tensor decoder_layer(const torch::Tensor& x, const torch::Tensor& inputs, const torch::Tensor& positions,
                            const Attend& attend, const Parameters& parameters, const std::string& blk,
                            const LayerShape& shape);

// The name of a layer's tensor in files: "blk.3.attn_q.weight".
std::string layer_tensor(int64_t layer, const std::string& tensor);

// Adds blk.i.* with the values of the target's layer, or drawn from N(0, 1/n_in) (residual branches smaller).
void add_layer(Parameters& parameters, int64_t i, const LayerShape& shape, const TargetTensors& target, int64_t layer);
void add_random_layer(Parameters& parameters, int64_t i, const LayerShape& shape);

torch::Tensor random_matrix(int64_t n_out, int64_t n_in, double scale = 1.0);

}  // namespace sluice

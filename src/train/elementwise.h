// Differentiable functions of each row by itself that read and write memory once, where libtorch's operations would
// take a pass, and keep a tensor for the gradients, each.
#pragma once

#include "train/torch.h"

namespace sluice {

// x / sqrt(mean(x^2) + epsilon), over the last dimension, times `weight` [d]; without one, of libtorch's operations.
torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double epsilon);
torch::Tensor rms_norm(const torch::Tensor& x, double epsilon);

// Rotary embedding. x: [..., heads, head_dim]; positions: [...] (i64), one for each x[...]. Element j turns with
// j + head_dim / 2 if `halves`, else 2 j with 2 j + 1, by position * base^(-2 j / head_dim).
torch::Tensor turn(const torch::Tensor& x, const torch::Tensor& positions, double base, bool halves);

}  // namespace sluice

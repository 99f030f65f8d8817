// The weights of a gated delta net (Yang et al. 2024, "Gated Delta Networks", equation 10), a layer whose attention is
// linear. Of a token, with u = mixed x of it and of the tokens before it:
//
//   q, k, v = silu(convolution of the last taps' u, channel by channel);  q and k: per head x / |x|, q / sqrt(head_dim)
//   b = sigmoid(intake x);  a = exp(keep_factor * softplus(keep x + keep_bias))
//   change = b (v - (a S) k);  S <- a S + change k^T;  o = S q;  out = norm(o) * silu(output_gate x)
//
// S, a head's state, is [head_dim values, head_dim keys]; a key head is read by several value heads.
#pragma once

#include <vector>

#include "compute/linear.h"

namespace sluice {

struct DeltaNet {
  Linear mixed, output_gate;       // [mixed_width, d_model], [value_width, d_model]
  Linear intake, keep;             // [value_heads, d_model], or if it isn't kept apart intake has both
  std::vector<float> convolution;  // [taps, mixed_width], a token's own last
  std::vector<float> keep_bias, keep_factor, norm;
  bool keeps_apart = false;
  int32_t index = 0;  // among such layers of its stage
};

}  // namespace sluice

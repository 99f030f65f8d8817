// The weights of multi-head latent attention (DeepSeek-V2, section 2.1): a cell keeps one latent c and one key part r
// that turns, for all heads. Keys and values of head h are k_b[h]^T c and v_b[h] c; they are never made: as
// q . (k_b^T c) = (k_b q) . c, queries go through k_b, and what attention leaves, a mean of latents, through v_b.
#pragma once

#include <vector>

#include "compute/linear.h"

namespace sluice {

struct LatentAttention {
  Linear q_a;                    // [q_rank, d_model], or empty: then queries come at once
  std::vector<float> q_a_norm;   // [q_rank]
  Linear q;                      // [heads * (key + turned), q_rank or d_model]
  Linear kv_a;                   // [rank + turned, d_model]
  std::vector<float> kv_a_norm;  // [rank]
  std::vector<Linear> k_b, v_b;  // [heads]: [rank, key] and [value, rank]
  FormatSet q_formats;           // of what q reads behind q_a
  FormatSet k_b_formats, v_b_formats;

  bool has_q_a() const { return q_a.n_out() > 0; }
};

}  // namespace sluice

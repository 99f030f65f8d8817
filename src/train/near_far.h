// Attention of rows that share most of what they see: SPD's calls and the steps of EAGLE-3's training-time test.
#pragma once

#include "train/torch.h"

namespace sluice {

// What query i of Q sees: the first far_of_first + i far rows, and of its own near rows the first near_of_first + i (no
// fewer than none, no more than there are). Its A-th row sees near rows A, A + 1, … of those, and always near row A.
struct NearFar {
  int64_t far_of_first = 0, near_of_first = 0;
};

// Softmax attention with grouped heads. q: [A, Q, heads, head_dim]; near_k, near_v: [a, Q, kv_heads, head_dim], A <= a,
// or a = 0 and A = 1; far_k, far_v: [T, kv_heads, head_dim], which all queries share. Gives [A, Q, heads * head_dim].
//
// Works through blocks of queries that stay in the cache, computes no far score that none of a block's queries sees,
// and keeps, beside its inputs, the weights alone for the gradients. REQUIRES: every row sees something.
torch::Tensor near_far_attention(const torch::Tensor& q, const torch::Tensor& near_k, const torch::Tensor& near_v,
                                 const torch::Tensor& far_k, const torch::Tensor& far_v, NearFar sees);

}  // namespace sluice

// The kernels behind Linear. Each computes a rectangle of outputs by rows of x; see linear.h for what they promise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/linear.h"

namespace sluice::kernels {

struct Product {
  const std::byte* weights = nullptr;
  size_t row_bytes = 0;  // of weights
  ggml_type type = GGML_TYPE_F32;
  int64_t n_in = 0, n_out = 0;
  const float* bias = nullptr;   // or null; readable up to the next multiple of 8
  const std::byte* x = nullptr;  // rows in the kernel's format
  size_t x_bytes = 0;            // from one row of x to the next
  Linear::Target target;
};

// Q4_1 and Q8_0, eight rows interleaved. The value of an output is defined block by block, in the order of the blocks,
// with I the exact integer product sum of 32 weights and 32 activations, and each line one rounding:
//   s = d_w * d_x;  y = fma(s, I, y);  for Q4_1 also y = fma(m_w, d_x * sum(x), y).
bool packs(ggml_type type);
size_t packed_bytes(ggml_type type, int64_t n_in, int64_t n_out);
void pack(const Tensor& weight, std::byte* out);
void multiply_packed(const Product& p, Part outputs, Part rows);

// F32, F16, BF16 with f32 activations: eight lanes, lane l takes the inputs l, l + 8, …, each by fma; then sum8; then
// the up to seven inputs that are left, by fma.
void multiply_dense(const Product& p, Part outputs, Part rows);

// Every other type: ggml's vec_dot, one row of x at a time.
void multiply_by_vec_dot(const Product& p, Part outputs, Part rows);

// x: [n], n a multiple of 32, to kQ8 (Value = int8_t) or kQ8Wide (int16_t): [n / 32] BlockScale, then [n] Value.
struct BlockScale {
  float scale, scaled_sum;  // x is about scale * q; scaled_sum = scale * sum(q)
};
template <class Value>
void quantise(const float* x, int64_t n, std::byte* out);

}  // namespace sluice::kernels

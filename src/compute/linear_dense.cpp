// Products with F32, F16 and BF16 weights, and the way by ggml's vec_dot for the types without a kernel of their own.
#include <ggml-cpu.h>

#include <algorithm>
#include <cmath>

#include "compute/linear_kernels.h"
#include "compute/simd.h"

namespace sluice::kernels {
namespace {

void put(const Product& p, int64_t output, int64_t row, float value) {
  if (p.bias) value += p.bias[output];
  float& y = p.target.y[row * p.target.stride + output];
  y = p.target.add ? y + value : value;
}

// A tile of R outputs by C rows of x.
template <class Weight, int R, int C>
void dense_tile(const Product& p, int64_t output, int64_t row) {
  const Weight* w[R];
  const float* x[C];
  for (int r = 0; r < R; ++r) {
    w[r] = reinterpret_cast<const Weight*>(p.weights + static_cast<size_t>(output + r) * p.row_bytes);
  }
  for (int c = 0; c < C; ++c) x[c] = reinterpret_cast<const float*>(p.x + static_cast<size_t>(row + c) * p.x_bytes);
  F32x8 sums[R][C];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sums[r][c] = zero8();
  }
  const int64_t whole = p.n_in / kLanes * kLanes;
  for (int64_t k = 0; k < whole; k += kLanes) {
    F32x8 wide[R];
    for (int r = 0; r < R; ++r) wide[r] = load8(w[r] + k);
    for (int c = 0; c < C; ++c) {
      const F32x8 in = load8(x[c] + k);
      for (int r = 0; r < R; ++r) sums[r][c] = fma8(wide[r], in, sums[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) {
      float sum = sum8(sums[r][c]);
      for (int64_t k = whole; k < p.n_in; ++k) sum = std::fma(to_f32(w[r][k]), x[c][k], sum);
      put(p, output + r, row + c, sum);
    }
  }
}

template <class Weight, int C>
void dense_rows(const Product& p, Part outputs, int64_t row) {
  constexpr int kTall = C == 1 ? 8 : 4;
  int64_t output = outputs.begin;
  for (; output + kTall <= outputs.end; output += kTall) dense_tile<Weight, kTall, C>(p, output, row);
  for (; output < outputs.end; ++output) dense_tile<Weight, 1, C>(p, output, row);
}

// Weights pass in strips that stay in L1 while all rows of x are multiplied with them.
template <class Weight>
void dense(const Product& p, Part outputs, Part rows) {
  constexpr int64_t kStrip = 8;
  for (int64_t first = outputs.begin; first < outputs.end; first += kStrip) {
    const Part strip{first, std::min(outputs.end, first + kStrip)};
    int64_t row = rows.begin;
    for (; row + 2 < rows.end; row += 3) dense_rows<Weight, 3>(p, strip, row);
    for (; row < rows.end; ++row) dense_rows<Weight, 1>(p, strip, row);
  }
}

}  // namespace

void multiply_dense(const Product& p, Part outputs, Part rows) {
  switch (p.type) {
    case GGML_TYPE_F16:
      return dense<ggml_fp16_t>(p, outputs, rows);
    case GGML_TYPE_BF16:
      return dense<ggml_bf16_t>(p, outputs, rows);
    default:
      return dense<float>(p, outputs, rows);
  }
}

void multiply_by_vec_dot(const Product& p, Part outputs, Part rows) {
  const auto dot = ggml_get_type_traits_cpu(p.type)->vec_dot;
  constexpr int64_t kStrip = 16;  // rows of weights that stay in cache
  for (int64_t first = outputs.begin; first < outputs.end; first += kStrip) {
    const int64_t last = std::min(outputs.end, first + kStrip);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const std::byte* x = p.x + static_cast<size_t>(row) * p.x_bytes;
      for (int64_t output = first; output < last; ++output) {
        float value = 0.0f;
        dot(static_cast<int>(p.n_in), &value, 0, p.weights + static_cast<size_t>(output) * p.row_bytes, 0, x, 0, 1);
        put(p, output, row, value);
      }
    }
  }
}

}  // namespace sluice::kernels

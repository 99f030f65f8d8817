// The inner loops of a layer: what each computes, to the last bit, whichever instruction set it is compiled for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/half.h"

namespace sluice::kernels {

// The weight types that have kernels, by their packed form. `Indexed` are those that keep a file's indices into a grid.
enum class WeightForm : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kQ2_K,
  kQ3_K,
  kTQ1_0,
  kTQ2_0,
  kQ1_0,
  kQ2_0,
  kIQ1_S,
  kIQ1_M,
  kIQ2_XXS,
  kIQ2_XS,
  kIQ2_S,
  kIQ3_XXS,
  kIQ3_S,
  kIndexedIQ1_S,
  kIndexedIQ1_M,
  kIndexedIQ2_XXS,
  kIndexedIQ2_XS,
  kIndexedIQ2_S,
  kIndexedIQ3_XXS,
  kIndexedIQ3_S
};
inline constexpr int kWeightForms = 34;

// A rectangle of y = x W^T + b: outputs [output, output_end) of rows [row, row_end) of x.
//
// The value of an output, with every line one rounding. Quantised, block of 32 inputs by block in order, with I the
// exact integer sum of the products of codes (less the type's offset) and activations:
//   s = d * d_x;  y = fma(s, I, y);  with minima also y = fma(m, d_x * sum(x), y).
// K-quants: d = d_super * scale, m = -(d_super_min * min). Scaled by halves (Q2_K, Q3_K, Q6_K, IQ1, IQ2):
// I = scale_0 I_0 + scale_1 I_1; and Q2_K's minima: y = fma(-d_super_min * d_x, min_0 sum(x_0) + min_1 sum(x_1), y).
// Dense, in blocks of 8 inputs, runs of 4 blocks and 4 runs together: of each half of a block r = w_0 x_0;
// r = fma(w_k, x_k, r) for k = 1 … 3;  s = r_first + r_second;  t = t + s, from 0;  at a run's end u = u + t, from 0;
// after 4 runs y = y + u.
// BF16, x rounded to bfloat16, in blocks of 32 inputs, pair by pair, the odd one first: s = fma(w_1, x_1, s), from 0;
// s = fma(w_0, x_0, s); … ;  y = y + s. There every operand and result that would be subnormal is 0 (of its sign).
struct Product {
  const std::byte* weights = nullptr;  // packed; see packed.h
  int64_t n_in = 0, n_out = 0;
  const float* bias = nullptr;  // or null; readable up to the next multiple of 16
  const std::byte* x =
      nullptr;  // whole panels of 8 rows, [n_in / block][8] BlockInput, DenseInput or BFloatInput each; see packed.h
  float* y = nullptr;  // y[row * stride + output], replaced or added to
  int64_t stride = 0;
  bool add = false;
  int64_t output = 0, output_end = 0;  // output is a multiple of 16
  int64_t row = 0, row_end = 0;        // row is a multiple of 8
  int64_t ahead = 0;                   // bytes: so far ahead of what is multiplied weights are fetched into the cache
};

// From so many rows of x on a product is faster where output and output_end are multiples of 32.
inline constexpr int kRowsForTwoGroups = 6;

// One token's way through a head of a gated delta net (compute/delta_net.h), n values and n keys wide: with s = keep *
// from[v][k], one rounding,
//   change[v] = intake * (value[v] - sum over k of s key[k]);  to[v][k] = fma(change[v], key[k], s);
//   out[v] = sum over k of to[v][k] query[k].
// Sums are of eight partial sums by k mod 8, added as sums_of_8 does. `from` and `to` may be the same.
struct DeltaStep {
  const float *key, *query, *value;  // [n]
  float intake, keep;
  float *change, *out;  // [n]
};

struct Kernels {
  const char* name;  // of the instruction set: scalar, avx2, avxvnni, avx512, avx512bf16, amx or neon
  void (*multiply[kWeightForms])(const Product& product);

  // x: [n], n a multiple of 32, to a row of a panel of BlockInput; `out` is the row's first.
  void (*quantise)(const float* x, int64_t n, std::byte* out);

  // out[i] = x[i] * weight[i] / sqrt(mean(x^2) + epsilon). x and out may be the same.
  void (*rms_norm)(const float* x, const float* weight, int64_t n, float epsilon, float* out);
  // gate[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + e^-x).
  void (*silu_times)(float* gate, const float* up, int64_t n);
  // gate[i] = g / (1 + e^-(1.702 g)) * (u + 1), where g = min(gate[i], 7) and u = up[i], from -7 to 7.
  void (*clamped_silu_times)(float* gate, const float* up, int64_t n);
  // gate[i] = gelu(gate[i]) * up[i], gelu(x) = x / (1 + e^-2z) with z = sqrt(2 / pi) (x + 0.044715 x^3), which is
  // x / 2 (1 + tanh z).
  void (*gelu_times)(float* gate, const float* up, int64_t n);
  // x[i] = x[i] / (1 + e^-gate[i]).
  void (*sigmoid_times)(const float* gate, float* x, int64_t n);
  // x[i] = cap * tanh(x[i] / cap).
  void (*soft_cap)(float* x, int64_t n, float cap);
  // x = softmax(x). The sum is of eight partial sums, by i mod 8.
  void (*softmax)(float* x, int64_t n);

  // scores[i * stride + j] = queries[i] . keys[j] for i < n and j < 8: lane by lane along the head, then summed as
  // sums_of_8 does. queries: [n][padded], keys: [8][padded], padded a multiple of 8.
  void (*scores)(const float* queries, int64_t n, const float* keys, int64_t padded, float* scores, int64_t stride);
  // totals[i] += sum over j < count of shares[i * stride + j] * values[j], in the order of j, for i < n. values:
  // [count][padded], totals: [n][padded].
  void (*gather)(const float* shares, int64_t stride, int64_t n, const float* values, int64_t padded, int64_t count,
                 float* totals);
  // from, to: [n][n], n a multiple of 8.
  void (*delta_step)(const float* from, float* to, int64_t n, const DeltaStep& step);
  // The same with a change that is known: to[v][k] alone.
  void (*delta_update)(const float* from, float* to, int64_t n, const float* key, const float* change, float keep);
  // out[i] = silu(s), s = weights[j * stride + i] inputs[j][i] for j = 0, then fused with that for each further j <
  // taps. n a multiple of 8.
  void (*short_convolution)(const float* const* inputs, int64_t taps, const float* weights, int64_t stride, int64_t n,
                            float* out);
  void (*to_halves)(const float* x, int64_t n, Half* out);
  void (*from_halves)(const Half* x, int64_t n, float* out);
  // Blocks of 32 values, the last of what is left: scale = max |x| / 127, rounded to f16 when the bytes are known;
  // out[i] = round(x[i] * (127 / max |x|)), 0 where that is at most 1e-30. And back: scale * q.
  void (*to_bytes)(const float* x, int64_t n, int8_t* out, Half* scales);
  void (*from_bytes)(const int8_t* q, const Half* scales, int64_t n, float* out);
};

}  // namespace sluice::kernels

#include "base/math.h"
#include "compute/kernels/parts.h"
#include "compute/kernels/simd.h"

namespace sluice::kernels::SLUICE_ISA {
namespace {

void rms_norm(const float* x, const float* weight, int64_t n, float epsilon, float* out) {
  const int64_t whole = n / kLanes * kLanes;
  F32x8 squares = zero8();
  for (int64_t i = 0; i < whole; i += kLanes) squares = fma8(load8(x + i), load8(x + i), squares);
  float sum = sum8(squares);
  for (int64_t i = whole; i < n; ++i) sum = std::fma(x[i], x[i], sum);
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(n) + epsilon);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void silu_times(float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; ++i) gate[i] = gate[i] / (1.0f + exp_f32(-gate[i])) * up[i];
}

void clamped_silu_times(float* gate, const float* up, int64_t n) {
  constexpr float kSteepness = 1.702f, kLimit = 7.0f;
  for (int64_t i = 0; i < n; ++i) {
    const float g = gate[i] > kLimit ? kLimit : gate[i];
    const float u = up[i] > kLimit ? kLimit : up[i] < -kLimit ? -kLimit : up[i];
    gate[i] = g / (1.0f + exp_f32(-(kSteepness * g))) * (u + 1.0f);
  }
}

void gelu_times(float* gate, const float* up, int64_t n) {
  constexpr float kTwiceRoot = 1.5957691216f, kCubic = 0.044715f;
  for (int64_t i = 0; i < n; ++i) {
    const float x = gate[i];
    gate[i] = x / (1.0f + exp_f32(-(kTwiceRoot * x * (1.0f + kCubic * x * x)))) * up[i];
  }
}

void soft_cap(float* x, int64_t n, float cap) {
  for (int64_t i = 0; i < n; ++i) {
    const float part = exp_f32(-2.0f * std::fabs(x[i] / cap));
    x[i] = std::copysign(cap * ((1.0f - part) / (1.0f + part)), x[i]);
  }
}

void softmax(float* x, int64_t n) {
  const int64_t whole = n / kLanes * kLanes;
  F32x8 most = splat8(-INFINITY);
  for (int64_t i = 0; i < whole; i += kLanes) most = max8(most, load8(x + i));
  float largest = largest8(most);
  for (int64_t i = whole; i < n; ++i) largest = x[i] > largest ? x[i] : largest;

  for (int64_t i = 0; i < n; ++i) x[i] = exp_f32(x[i] - largest);
  F32x8 sums = zero8();
  for (int64_t i = 0; i < whole; i += kLanes) sums = add8(sums, load8(x + i));
  float rest[kLanes] = {};
  for (int64_t i = whole; i < n; ++i) rest[i - whole] = x[i];
  const float share = 1.0f / sum8(add8(sums, load8(rest)));
  for (int64_t i = 0; i < n; ++i) x[i] *= share;
}

void scores(const float* queries, int64_t n, const float* keys, int64_t padded, float* out, int64_t stride) {
  for (int64_t query = 0; query < n; ++query, queries += padded, out += stride) {
    F32x8 sums[8];
    for (F32x8& sum : sums) sum = zero8();
    for (int64_t d = 0; d < padded; d += kLanes) {
      const F32x8 part = load8(queries + d);
      for (int i = 0; i < 8; ++i) sums[i] = fma8(part, load8(keys + i * padded + d), sums[i]);
    }
    store8(out, sums_of_8(sums));
  }
}

// Wide vectors of `total` from d on.
template <int Wide>
inline void gather_vectors(const float* share, const float* values, int64_t padded, int64_t count, int64_t d,
                           float* total) {
  F32x8 sums[Wide];
  for (int j = 0; j < Wide; ++j) sums[j] = load8(total + d + j * kLanes);
  for (int64_t i = 0; i < count; ++i) {
    const F32x8 weight = splat8(share[i]);
    for (int j = 0; j < Wide; ++j) sums[j] = fma8(weight, load8(values + i * padded + d + j * kLanes), sums[j]);
  }
  for (int j = 0; j < Wide; ++j) store8(total + d + j * kLanes, sums[j]);
}

void gather(const float* shares, int64_t stride, int64_t n, const float* values, int64_t padded, int64_t count,
            float* totals) {
  for (int64_t query = 0; query < n; ++query, shares += stride, totals += padded) {
    int64_t d = 0;
    for (; d + 8 * kLanes <= padded; d += 8 * kLanes) gather_vectors<8>(shares, values, padded, count, d, totals);
    for (; d < padded; d += kLanes) gather_vectors<1>(shares, values, padded, count, d, totals);
  }
}

void to_halves(const float* x, int64_t n, Half* out) {
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) store8(out + i, load8(x + i));
  for (int64_t i = whole; i < n; ++i) out[i] = to_half(x[i]);
}

void from_halves(const Half* x, int64_t n, float* out) {
  const int64_t whole = n / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) store8(out + i, load8(x + i));
  for (int64_t i = whole; i < n; ++i) out[i] = to_f32(x[i]);
}

}  // namespace

void set_elementwise(Kernels& kernels) {
  kernels.rms_norm = rms_norm;
  kernels.silu_times = silu_times;
  kernels.clamped_silu_times = clamped_silu_times;
  kernels.gelu_times = gelu_times;
  kernels.soft_cap = soft_cap;
  kernels.softmax = softmax;
  kernels.scores = scores;
  kernels.gather = gather;
  kernels.to_halves = to_halves;
  kernels.from_halves = from_halves;
}

}  // namespace sluice::kernels::SLUICE_ISA

#include <bit>

#include "base/math.h"
#include "compute/kernels/packed.h"
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

void sigmoid_times(const float* gate, float* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = x[i] / (1.0f + exp_f32(-gate[i]));
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

// Eight values at a time, whose sums need no order among each other.
void delta_step(const float* from, float* to, int64_t n, const DeltaStep& step) {
  const F32x8 keep = splat8(step.keep);
  for (int64_t v = 0; v < n; v += 8) {
    F32x8 sums[8], changes[8];
    for (F32x8& sum : sums) sum = zero8();
    for (int64_t k = 0; k < n; k += kLanes) {
      const F32x8 key = load8(step.key + k);
      for (int i = 0; i < 8; ++i) sums[i] = fma8(mul8(keep, load8(from + (v + i) * n + k)), key, sums[i]);
    }
    float known[8];
    store8(known, sums_of_8(sums));
    for (int i = 0; i < 8; ++i) {
      step.change[v + i] = step.intake * (step.value[v + i] - known[i]);
      changes[i] = splat8(step.change[v + i]);
      sums[i] = zero8();
    }
    for (int64_t k = 0; k < n; k += kLanes) {
      const F32x8 key = load8(step.key + k), query = load8(step.query + k);
      for (int i = 0; i < 8; ++i) {
        const F32x8 state = fma8(changes[i], key, mul8(keep, load8(from + (v + i) * n + k)));
        store8(to + (v + i) * n + k, state);
        sums[i] = fma8(state, query, sums[i]);
      }
    }
    store8(step.out + v, sums_of_8(sums));
  }
}

void delta_update(const float* from, float* to, int64_t n, const float* key, const float* change, float keep) {
  const F32x8 kept = splat8(keep);
  for (int64_t v = 0; v < n; ++v) {
    const F32x8 by = splat8(change[v]);
    for (int64_t k = 0; k < n; k += kLanes)
      store8(to + v * n + k, fma8(by, load8(key + k), mul8(kept, load8(from + v * n + k))));
  }
}

void short_convolution(const float* const* inputs, int64_t taps, const float* weights, int64_t stride, int64_t n,
                       float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    F32x8 sum = mul8(load8(weights + i), load8(inputs[0] + i));
    for (int64_t j = 1; j < taps; ++j) sum = fma8(load8(weights + j * stride + i), load8(inputs[j] + i), sum);
    store8(out + i, sum);
  }
  for (int64_t i = 0; i < n; ++i) out[i] = out[i] / (1.0f + exp_f32(-out[i]));
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

// The value of an integer so near 0 is its lowest bits, as 1.5 * 2^23 is added.
inline void block_to_bytes(const float* x, int n, int8_t* out, Half* scale) {
  uint32_t most = 0;  // of |x| as bits, which rise with it
  for (int k = 0; k < n; ++k) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[k]) & 0x7FFFFFFFu;
    most = bits > most ? bits : most;
  }
  const float largest = std::bit_cast<float>(most);
  const float per_value = largest > 1e-30f ? 127.0f / largest : 0.0f;
  constexpr float kRound = 12582912.0f;
  for (int k = 0; k < n; ++k)
    out[k] = static_cast<int8_t>(std::bit_cast<uint32_t>(x[k] * per_value + kRound) - std::bit_cast<uint32_t>(kRound));
  *scale = to_half(largest / 127.0f);
}

void to_bytes(const float* x, int64_t n, int8_t* out, Half* scales) {
  for (; n >= kBlock; n -= kBlock, x += kBlock, out += kBlock) block_to_bytes(x, kBlock, out, scales++);
  if (n > 0) block_to_bytes(x, static_cast<int>(n), out, scales);
}

inline void block_from_bytes(const int8_t* q, int n, float scale, float* out) {
  for (int k = 0; k < n; ++k) out[k] = scale * static_cast<float>(q[k]);
}

void from_bytes(const int8_t* q, const Half* scales, int64_t n, float* out) {
  for (; n >= kLanes * kBlock; n -= kLanes * kBlock, scales += kLanes) {  // halves become floats eight at a time
    float wide[kLanes];
    store8(wide, load8(scales));
    for (int i = 0; i < kLanes; ++i, q += kBlock, out += kBlock) block_from_bytes(q, kBlock, wide[i], out);
  }
  for (; n >= kBlock; n -= kBlock, q += kBlock, out += kBlock) block_from_bytes(q, kBlock, to_f32(*scales++), out);
  if (n > 0) block_from_bytes(q, static_cast<int>(n), to_f32(*scales), out);
}

}  // namespace

void set_elementwise(Kernels& kernels) {
  kernels.rms_norm = rms_norm;
  kernels.silu_times = silu_times;
  kernels.clamped_silu_times = clamped_silu_times;
  kernels.gelu_times = gelu_times;
  kernels.sigmoid_times = sigmoid_times;
  kernels.soft_cap = soft_cap;
  kernels.softmax = softmax;
  kernels.scores = scores;
  kernels.gather = gather;
  kernels.delta_step = delta_step;
  kernels.delta_update = delta_update;
  kernels.short_convolution = short_convolution;
  kernels.to_halves = to_halves;
  kernels.from_halves = from_halves;
  kernels.to_bytes = to_bytes;
  kernels.from_bytes = from_bytes;
}

}  // namespace sluice::kernels::SLUICE_ISA

// Eight floats at a time, with the same bits on every processor: AVX2 where there is AVX2, else plain loops.
#pragma once

#include <ggml.h>

#include <cmath>
#include <cstdint>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define SLUICE_AVX2 1
#include <immintrin.h>
#else
#define SLUICE_AVX2 0
#endif

namespace sluice {

inline constexpr int kLanes = 8;

#if SLUICE_AVX2

struct F32x8 {
  __m256 v;
};

inline F32x8 zero8() { return {_mm256_setzero_ps()}; }
inline F32x8 splat8(float x) { return {_mm256_set1_ps(x)}; }
inline F32x8 load8(const float* p) { return {_mm256_loadu_ps(p)}; }
inline F32x8 load8(const ggml_fp16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline F32x8 load8(const ggml_bf16_t* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
}
inline void store8(float* p, F32x8 a) { _mm256_storeu_ps(p, a.v); }
inline void store8(ggml_fp16_t* p, F32x8 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
inline F32x8 add8(F32x8 a, F32x8 b) { return {_mm256_add_ps(a.v, b.v)}; }
inline F32x8 mul8(F32x8 a, F32x8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline F32x8 fma8(F32x8 a, F32x8 b, F32x8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
inline F32x8 max8(F32x8 a, F32x8 b) { return {_mm256_max_ps(a.v, b.v)}; }
inline F32x8 abs8(F32x8 a) { return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)}; }

// Lane i: ((a0 + a1) + (a2 + a3)) + ((a4 + a5) + (a6 + a7)) of rows[i].
inline F32x8 sums_of_8(const F32x8 (&rows)[8]) {
  const __m256 ab = _mm256_hadd_ps(rows[0].v, rows[1].v), cd = _mm256_hadd_ps(rows[2].v, rows[3].v);
  const __m256 ef = _mm256_hadd_ps(rows[4].v, rows[5].v), gh = _mm256_hadd_ps(rows[6].v, rows[7].v);
  const __m256 abcd = _mm256_hadd_ps(ab, cd), efgh = _mm256_hadd_ps(ef, gh);
  return {_mm256_add_ps(_mm256_permute2f128_ps(abcd, efgh, 0x20), _mm256_permute2f128_ps(abcd, efgh, 0x31))};
}

#else

struct F32x8 {
  float v[kLanes];
};

template <class Fn>
F32x8 each_lane(Fn fn) {
  F32x8 r;
  for (int i = 0; i < kLanes; ++i) r.v[i] = fn(i);
  return r;
}
inline F32x8 splat8(float x) {
  return each_lane([&](int) { return x; });
}
inline F32x8 zero8() { return splat8(0.0f); }
inline F32x8 load8(const float* p) {
  return each_lane([&](int i) { return p[i]; });
}
inline F32x8 load8(const ggml_fp16_t* p) {
  return each_lane([&](int i) { return ggml_fp16_to_fp32(p[i]); });
}
inline F32x8 load8(const ggml_bf16_t* p) {
  return each_lane([&](int i) { return ggml_bf16_to_fp32(p[i]); });
}
inline void store8(float* p, F32x8 a) {
  for (int i = 0; i < kLanes; ++i) p[i] = a.v[i];
}
inline void store8(ggml_fp16_t* p, F32x8 a) {
  for (int i = 0; i < kLanes; ++i) p[i] = ggml_fp32_to_fp16(a.v[i]);
}
inline F32x8 add8(F32x8 a, F32x8 b) {
  return each_lane([&](int i) { return a.v[i] + b.v[i]; });
}
inline F32x8 mul8(F32x8 a, F32x8 b) {
  return each_lane([&](int i) { return a.v[i] * b.v[i]; });
}
inline F32x8 fma8(F32x8 a, F32x8 b, F32x8 c) {
  return each_lane([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
inline F32x8 max8(F32x8 a, F32x8 b) {
  return each_lane([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline F32x8 abs8(F32x8 a) {
  return each_lane([&](int i) { return std::fabs(a.v[i]); });
}
inline F32x8 sums_of_8(const F32x8 (&rows)[8]) {
  return each_lane([&](int i) {
    const float* a = rows[i].v;
    return ((a[0] + a[1]) + (a[2] + a[3])) + ((a[4] + a[5]) + (a[6] + a[7]));
  });
}

#endif

// ((a0 + a1) + (a2 + a3)) + ((a4 + a5) + (a6 + a7)).
inline float sum8(F32x8 a) {
  float v[kLanes];
  store8(v, a);
  return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

inline float largest8(F32x8 a) {
  float v[kLanes];
  store8(v, a);
  float m = v[0];
  for (int i = 1; i < kLanes; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

inline float to_f32(float x) { return x; }
inline float to_f32(ggml_fp16_t x) { return ggml_fp16_to_fp32(x); }
inline float to_f32(ggml_bf16_t x) { return ggml_bf16_to_fp32(x); }

}  // namespace sluice

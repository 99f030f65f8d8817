// Vectors of floats and integers for the instruction set that a file is being compiled for. Every
// operation gives the same bits on every one of them.
//
// The files that include this are compiled once for each instruction set, each time in a namespace of its own, so that
// the linker never takes a function of one for another. They use no templates of the standard library for that reason.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"

#ifndef SLUICE_ISA
#error "compile with -DSLUICE_ISA=scalar, avx2, avxvnni, avx512, avx512bf16, amx or neon"
#endif

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define SLUICE_SIMD_X86 1
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)
#define SLUICE_SIMD_NEON 1
#include <arm_neon.h>
#endif
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512VNNI__)
#define SLUICE_SIMD_AVX512 1
#else
#define SLUICE_SIMD_AVX512 0
#endif
// Tiles: registers of up to 16 rows of 64 bytes, for products of matrices of bytes.
#if SLUICE_SIMD_AVX512 && defined(__AMX_TILE__) && defined(__AMX_INT8__)
#define SLUICE_SIMD_AMX 1
#else
#define SLUICE_SIMD_AMX 0
#endif
// Products of four pairs of bytes, unsigned by signed, summed in 32 bits by one instruction.
#if SLUICE_SIMD_AVX512 || defined(__AVXVNNI__)
#define SLUICE_SIMD_VNNI 1
#else
#define SLUICE_SIMD_VNNI 0
#endif

namespace sluice::kernels::SLUICE_ISA {

#if SLUICE_SIMD_X86

inline int32_t four_bytes(const void* p) {
  int32_t bytes;
  std::memcpy(&bytes, p, sizeof bytes);
  return bytes;
}

struct F32x8 {
  __m256 v;
};

inline F32x8 zero8() { return {_mm256_setzero_ps()}; }
inline F32x8 splat8(float x) { return {_mm256_set1_ps(x)}; }
inline F32x8 load8(const float* p) { return {_mm256_loadu_ps(p)}; }
inline F32x8 load8(const Half* p) { return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))}; }
inline void store8(float* p, F32x8 a) { _mm256_storeu_ps(p, a.v); }
inline void store8(Half* p, F32x8 a) {
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

#elif SLUICE_SIMD_NEON

struct F32x8 {
  float32x4_t lo, hi;
};

inline F32x8 splat8(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
inline F32x8 zero8() { return splat8(0.0f); }
inline F32x8 load8(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
inline F32x8 load8(const Half* p) {
  const float16x8_t halves = vreinterpretq_f16_u16(vld1q_u16(reinterpret_cast<const uint16_t*>(p)));
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}
inline void store8(float* p, F32x8 a) {
  vst1q_f32(p, a.lo);
  vst1q_f32(p + 4, a.hi);
}
inline void store8(Half* p, F32x8 a) {
  vst1q_u16(reinterpret_cast<uint16_t*>(p), vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(a.lo), a.hi)));
}
inline F32x8 add8(F32x8 a, F32x8 b) { return {vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)}; }
inline F32x8 mul8(F32x8 a, F32x8 b) { return {vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)}; }
inline F32x8 fma8(F32x8 a, F32x8 b, F32x8 c) { return {vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)}; }
inline F32x8 max8(F32x8 a, F32x8 b) {
  return {vbslq_f32(vcgtq_f32(a.lo, b.lo), a.lo, b.lo), vbslq_f32(vcgtq_f32(a.hi, b.hi), a.hi, b.hi)};
}
inline F32x8 abs8(F32x8 a) { return {vabsq_f32(a.lo), vabsq_f32(a.hi)}; }
inline F32x8 sums_of_8(const F32x8 (&rows)[8]) {
  float32x4_t quarters[8];  // (a0 + a1, a2 + a3, a4 + a5, a6 + a7) of each row
  for (int i = 0; i < 8; ++i) quarters[i] = vpaddq_f32(rows[i].lo, rows[i].hi);
  const auto four = [&](int i) {
    return vpaddq_f32(vpaddq_f32(quarters[i], quarters[i + 1]), vpaddq_f32(quarters[i + 2], quarters[i + 3]));
  };
  return {four(0), four(4)};
}

#else

struct F32x8 {
  float v[8];
};

template <class Fn>
inline F32x8 each_lane(Fn fn) {
  F32x8 r;
  for (int i = 0; i < 8; ++i) r.v[i] = fn(i);
  return r;
}
inline F32x8 splat8(float x) {
  return each_lane([&](int) { return x; });
}
inline F32x8 zero8() { return splat8(0.0f); }
inline F32x8 load8(const float* p) {
  return each_lane([&](int i) { return p[i]; });
}
inline F32x8 load8(const Half* p) {
  return each_lane([&](int i) { return to_f32(p[i]); });
}
inline void store8(float* p, F32x8 a) {
  for (int i = 0; i < 8; ++i) p[i] = a.v[i];
}
inline void store8(Half* p, F32x8 a) {
  for (int i = 0; i < 8; ++i) p[i] = to_half(a.v[i]);
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

inline constexpr int kLanes = 8;

// ((a0 + a1) + (a2 + a3)) + ((a4 + a5) + (a6 + a7)).
inline float sum8(F32x8 a) {
  float v[8];
  store8(v, a);
  return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

inline float largest8(F32x8 a) {
  float v[8];
  store8(v, a);
  float m = v[0];
  for (int i = 1; i < 8; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

// The value is computed here and stays in its register. Without it GCC puts all sums of a block off until its end, and
// has no registers for what is to be summed.
#if SLUICE_SIMD_AVX512
inline void pin(__m512& v) { asm volatile("" : "+v"(v)); }
inline void pin(__m512i& v) { asm volatile("" : "+v"(v)); }
#elif SLUICE_SIMD_X86
inline void pin(__m256& v) { asm volatile("" : "+x"(v)); }
inline void pin(__m256i& v) { asm volatile("" : "+x"(v)); }
#endif

// Rows: as many rows of a group of weights as a vector has lanes, one a lane.
#if SLUICE_SIMD_AVX512

inline constexpr int kRows = 16;
struct Rows {
  __m512 v;
};
struct IntRows {
  __m512i v;
};

inline Rows zero_rows() { return {_mm512_setzero_ps()}; }
inline Rows splat_rows(float x) { return {_mm512_set1_ps(x)}; }
inline Rows load_rows(const float* p) { return {_mm512_loadu_ps(p)}; }
inline Rows load_rows(const Half* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Rows load_rows(const BFloat16* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline Rows load_rows(const uint8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline Rows load_rows(const int8_t* p) {
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
inline void store_rows(float* p, Rows a) { _mm512_storeu_ps(p, a.v); }
inline Rows add_rows(Rows a, Rows b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Rows mul_rows(Rows a, Rows b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Rows fma_rows(Rows a, Rows b, Rows c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline void pin(Rows& a) { pin(a.v); }
inline Rows to_float(IntRows a) { return {_mm512_cvtepi32_ps(a.v)}; }
inline IntRows subtract(IntRows a, int32_t x) { return {_mm512_sub_epi32(a.v, _mm512_set1_epi32(x))}; }

#else

inline constexpr int kRows = 8;
using Rows = F32x8;
inline Rows zero_rows() { return zero8(); }
inline Rows splat_rows(float x) { return splat8(x); }
inline Rows load_rows(const float* p) { return load8(p); }
inline Rows load_rows(const Half* p) { return load8(p); }
inline void store_rows(float* p, Rows a) { store8(p, a); }
inline Rows add_rows(Rows a, Rows b) { return add8(a, b); }
inline Rows mul_rows(Rows a, Rows b) { return mul8(a, b); }
inline Rows fma_rows(Rows a, Rows b, Rows c) { return fma8(a, b, c); }

#if SLUICE_SIMD_X86

struct IntRows {
  __m256i v;
};
inline Rows load_rows(const BFloat16* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(wide, 16))};
}
inline Rows load_rows(const uint8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
}
inline Rows load_rows(const int8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
}
inline void pin(Rows& a) { pin(a.v); }
inline Rows to_float(IntRows a) { return {_mm256_cvtepi32_ps(a.v)}; }
inline IntRows subtract(IntRows a, int32_t x) { return {_mm256_sub_epi32(a.v, _mm256_set1_epi32(x))}; }

#else

struct IntRows {
  int32_t v[8];
};
inline void pin(Rows&) {}
template <class T>
inline Rows floats(const T* p) {
  float v[8];
  for (int i = 0; i < 8; ++i) v[i] = static_cast<float>(p[i]);
  return load8(v);
}
inline Rows load_rows(const uint8_t* p) { return floats(p); }
inline Rows load_rows(const int8_t* p) { return floats(p); }
inline Rows load_rows(const BFloat16* p) {
  float v[8];
  for (int i = 0; i < 8; ++i) v[i] = to_f32(p[i]);
  return load8(v);
}
inline Rows to_float(const IntRows& a) { return floats(a.v); }
inline IntRows subtract(IntRows a, int32_t x) {
  for (int32_t& lane : a.v) lane -= x;
  return a;
}

#endif
#endif

// A pair of numbers in bfloat16 for each row.
#if SLUICE_SIMD_AVX512 && defined(__AVX512BF16__)

struct RowPairs {
  __m512bh v;
};
inline RowPairs load_pairs(const BFloat16 (*p)[2]) { return {(__m512bh)_mm512_loadu_si512(p)}; }
inline RowPairs splat_pair(const BFloat16* p) { return {(__m512bh)_mm512_set1_epi32(four_bytes(p))}; }
// Two fused multiply-adds, of the odd ones first: so the instruction does it, with subnormal numbers as 0.
inline Rows fma_pairs(RowPairs a, RowPairs b, Rows c) { return {_mm512_dpbf16_ps(c.v, a.v, b.v)}; }

#else

struct RowPairs {
  Rows even, odd;
};
inline Rows fma_pairs(RowPairs a, RowPairs b, Rows c) { return fma_rows(a.even, b.even, fma_rows(a.odd, b.odd, c)); }

#if SLUICE_SIMD_AVX512
inline RowPairs pairs_of(__m512i both) {
  return {{_mm512_castsi512_ps(_mm512_slli_epi32(both, 16))},
          {_mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-65536)))}};
}
inline RowPairs load_pairs(const BFloat16 (*p)[2]) { return pairs_of(_mm512_loadu_si512(p)); }
inline RowPairs splat_pair(const BFloat16* p) { return pairs_of(_mm512_set1_epi32(four_bytes(p))); }
#elif SLUICE_SIMD_X86
inline RowPairs pairs_of(__m256i both) {
  return {{_mm256_castsi256_ps(_mm256_slli_epi32(both, 16))},
          {_mm256_castsi256_ps(_mm256_and_si256(both, _mm256_set1_epi32(-65536)))}};
}
inline RowPairs load_pairs(const BFloat16 (*p)[2]) {
  return pairs_of(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline RowPairs splat_pair(const BFloat16* p) { return pairs_of(_mm256_set1_epi32(four_bytes(p))); }
#else
inline RowPairs load_pairs(const BFloat16 (*p)[2]) {
  float even[kRows], odd[kRows];
  for (int i = 0; i < kRows; ++i) {
    even[i] = to_f32(p[i][0]);
    odd[i] = to_f32(p[i][1]);
  }
  return {load_rows(even), load_rows(odd)};
}
inline RowPairs splat_pair(const BFloat16* p) { return {splat_rows(to_f32(p[0])), splat_rows(to_f32(p[1]))}; }
#endif
#endif

// As long as it lives, arithmetic of this thread takes subnormal operands and results for 0, of their sign.
class SubnormalsAreZero {
 public:
#if defined(__x86_64__)
  SubnormalsAreZero() : before_(_mm_getcsr()) { set(before_ | 0x8040); }
  ~SubnormalsAreZero() { set(before_); }

 private:
  // The computation reads and writes memory: it stays between the two.
  static void set(unsigned control) {
    asm volatile("" ::: "memory");
    _mm_setcsr(control);
    asm volatile("" ::: "memory");
  }
  unsigned before_;
#elif defined(__aarch64__)
  SubnormalsAreZero() {
    asm volatile("mrs %0, fpcr" : "=r"(before_) : : "memory");
    set(before_ | 1u << 24);
  }
  ~SubnormalsAreZero() { set(before_); }

 private:
  static void set(uint64_t control) { asm volatile("msr fpcr, %0" : : "r"(control) : "memory"); }
  uint64_t before_;
#else
  SubnormalsAreZero() {}
  ~SubnormalsAreZero() {}
#endif
};

}  // namespace sluice::kernels::SLUICE_ISA

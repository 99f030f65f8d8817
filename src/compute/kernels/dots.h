// Integer sums of a block: sums[part][c], lane r = sum over 32 inputs k of value(row + part * kRows + r, k) *
// x[c].q[k], exact, for N parts of a group at once, so that a step of x is fetched once for all of them.
//
// Instructions that multiply unsigned by signed bytes want codes without signs: where kBias is not 0, the sums are of
// value + kBias, and the caller subtracts kBias * sum(x).
#pragma once

#include "compute/kernels/packed.h"
#include "compute/kernels/simd.h"

namespace sluice::kernels::SLUICE_ISA {

// Of a group of rows of weights, a vector's worth of rows each.
inline constexpr int kParts = kGroup / kRows;

template <class Codes>
inline constexpr int kBias = 0;
#if SLUICE_SIMD_VNNI
template <const int8_t (&Values)[16], int Least, class Index>
inline constexpr int kBias<CodesOfTable<Values, Least, Index>> = Least;
template <>
inline constexpr int kBias<Codes3> = 4;
template <>
inline constexpr int kBias<Codes6> = 32;
template <>
inline constexpr int kBias<Codes8> = 128;
template <int Least>
inline constexpr int kBias<SmallBytes<Least>> = 128;
#endif

#if SLUICE_SIMD_AVX512

// Steps i and i + 4 of all rows.
struct StepPair {
  __m512i first, second;
};

inline __m512i load64(const void* p) { return _mm512_loadu_si512(p); }
inline __m512i bytes(int8_t x) { return _mm512_set1_epi8(x); }

inline StepPair step_bits(const Nibbles& codes, int i) {
  const __m512i both = load64(codes.q[i]);
  return {_mm512_and_si512(both, bytes(15)), _mm512_and_si512(_mm512_srli_epi16(both, 4), bytes(15))};
}
inline StepPair step_bits(const Crumbs& codes, int i) {
  const auto half = [&](int which) {
    return _mm512_and_si512(_mm512_srl_epi16(load64(codes.q[which]), _mm_cvtsi32_si128(2 * i)), bytes(3));
  };
  return {half(0), half(1)};
}
// Bit `step` of each byte becomes bit `to`.
inline __m512i moved_bit(const void* from, int step, int to) {
  const __m512i all = load64(from);
  const __m512i moved = step < to ? _mm512_sll_epi16(all, _mm_cvtsi32_si128(to - step))
                                  : _mm512_srl_epi16(all, _mm_cvtsi32_si128(step - to));
  return _mm512_and_si512(moved, bytes(static_cast<int8_t>(1 << to)));
}
inline StepPair step_bits(const Crumbs3& codes, int i) {
  const StepPair low = step_bits(static_cast<const Crumbs&>(codes), i);
  return {_mm512_or_si512(low.first, moved_bit(codes.high, i, 2)),
          _mm512_or_si512(low.second, moved_bit(codes.high, i + 4, 2))};
}
inline __m512i look_up(const int8_t (&table)[16], int8_t bias, __m512i index) {
  const __m128i values = _mm_add_epi8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)), _mm_set1_epi8(bias));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), index);
}

inline StepPair steps(const Codes1& codes, int i) { return {moved_bit(codes.q, i, 1), moved_bit(codes.q, i + 4, 1)}; }
inline StepPair steps(const Codes2& codes, int i) { return step_bits(codes, i); }
inline StepPair steps(const Codes3& codes, int i) { return step_bits(codes, i); }
inline StepPair steps(const Codes4& codes, int i) { return step_bits(codes, i); }
template <const int8_t (&Values)[16], int Least, class Index>
inline StepPair steps(const CodesOfTable<Values, Least, Index>& codes, int i) {
  const StepPair index = step_bits(codes, i);
  return {look_up(Values, Least, index.first), look_up(Values, Least, index.second)};
}
inline StepPair steps(const Codes5& codes, int i) {
  const StepPair low = step_bits(codes, i);
  return {_mm512_or_si512(low.first, moved_bit(codes.high, i, 4)),
          _mm512_or_si512(low.second, moved_bit(codes.high, i + 4, 4))};
}
inline StepPair steps(const Codes6& codes, int i) {
  const StepPair low = step_bits(codes, i);
  const auto bits = [&](int half) {
    const __m512i moved = _mm512_srl_epi16(load64(codes.high[half]), _mm_cvtsi32_si128(2 * i));
    return _mm512_slli_epi16(_mm512_and_si512(moved, bytes(3)), 4);
  };
  return {_mm512_or_si512(low.first, bits(0)), _mm512_or_si512(low.second, bits(1))};
}
inline StepPair steps(const Codes8& codes, int i) {
  const __m512i sign = bytes(-128);
  return {_mm512_xor_si512(load64(codes.q[i]), sign), _mm512_xor_si512(load64(codes.q[i + 4]), sign)};
}

inline __m512i splat_step(const int8_t* x) { return _mm512_set1_epi32(four_bytes(x)); }

// sums[group][c] over a half of the block, added to what is there: a step of x is fetched once for all groups.
template <int Half, int G, class Codes, int C>
inline void add_half(const Codes* const (&codes)[G], const BlockInput* x, IntRows (&sums)[G][C]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    __m512i w[G];
    for (int group = 0; group < G; ++group) {
      const StepPair pair = steps(*codes[group], i);
      w[group] = Half == 0 ? pair.first : pair.second;
    }
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      __m512i in = splat_step(x[c].q + 16 * Half + 4 * i);
      if constexpr (G > 1) pin(in);
#pragma GCC unroll 2
      for (int group = 0; group < G; ++group) sums[group][c].v = _mm512_dpbusd_epi32(sums[group][c].v, w[group], in);
    }
  }
}

template <int G, int C>
inline void clear(IntRows (&sums)[G][C]) {
  for (int group = 0; group < G; ++group) {
    for (int c = 0; c < C; ++c) sums[group][c].v = _mm512_setzero_si512();
  }
}

template <int G, class Codes, int C>
inline void block_sums(const Codes* const (&codes)[G], const BlockInput* x, IntRows (&sums)[G][C]) {
  clear(sums);
  add_half<0>(codes, x, sums);
  if constexpr (G > 1) {
    add_half<1>(codes, x, sums);
  } else {  // there are registers for sums that need not wait for the first half's
    IntRows second[G][C];
    clear(second);
    add_half<1>(codes, x, second);
    for (int c = 0; c < C; ++c) sums[0][c].v = _mm512_add_epi32(sums[0][c].v, second[0][c].v);
  }
}

// The factors of the two halves of a block.
struct HalfFactors {
  __m512i first, second;
};
inline __m512i pairs_of(const int8_t (&scale)[kGroup][2]) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scale)));
}
inline __m512i pairs_of(const ScaleAndMinNibbles (&scale)[kGroup][2]) {
  const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(scale));
  return _mm512_cvtepi8_epi16(_mm256_and_si256(both, _mm256_set1_epi8(15)));
}
template <class Scale>
inline HalfFactors factors_of(const Scale (&scale)[kGroup][2]) {
  const __m512i pairs = pairs_of(scale);
  return {_mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 16), _mm512_srai_epi32(pairs, 16)};
}
inline IntRows scaled_sum(IntRows first, IntRows second, const HalfFactors& factors) {
  return {_mm512_add_epi32(_mm512_mullo_epi32(first.v, factors.first), _mm512_mullo_epi32(second.v, factors.second))};
}

template <int G, class Codes, int C>
inline void scaled_sums(const Codes* const (&codes)[G], const HalfFactors (&factors)[G], const BlockInput* x,
                        IntRows (&sums)[G][C]) {
  IntRows second[G][C];
  clear(sums);
  add_half<0>(codes, x, sums);
  clear(second);
  add_half<1>(codes, x, second);
  for (int group = 0; group < G; ++group) {
    for (int c = 0; c < C; ++c) {
      sums[group][c] = scaled_sum(subtract(sums[group][c], kBias<Codes> * x[c].half_sums[0]),
                                  subtract(second[group][c], kBias<Codes> * x[c].half_sums[1]), factors[group]);
    }
  }
}

#elif SLUICE_SIMD_X86

// Steps i and i + 4 of eight rows.
struct StepPair {
  __m256i first, second;
};

inline __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline __m256i bytes(int8_t x) { return _mm256_set1_epi8(x); }

inline StepPair step_bits(const Nibbles& codes, int row, int i) {
  const __m256i both = load32(codes.q[i][row]);
  return {_mm256_and_si256(both, bytes(15)), _mm256_and_si256(_mm256_srli_epi16(both, 4), bytes(15))};
}
inline StepPair step_bits(const Crumbs& codes, int row, int i) {
  const auto half = [&](int which) {
    return _mm256_and_si256(_mm256_srl_epi16(load32(codes.q[which][row]), _mm_cvtsi32_si128(2 * i)), bytes(3));
  };
  return {half(0), half(1)};
}
// Bit `step` of each byte becomes bit `to`.
inline __m256i moved_bit(const void* from, int step, int to) {
  const __m256i all = load32(from);
  const __m256i moved = step < to ? _mm256_sll_epi16(all, _mm_cvtsi32_si128(to - step))
                                  : _mm256_srl_epi16(all, _mm_cvtsi32_si128(step - to));
  return _mm256_and_si256(moved, bytes(static_cast<int8_t>(1 << to)));
}
inline StepPair step_bits(const Crumbs3& codes, int row, int i) {
  const StepPair low = step_bits(static_cast<const Crumbs&>(codes), row, i);
  return {_mm256_or_si256(low.first, moved_bit(codes.high[row], i, 2)),
          _mm256_or_si256(low.second, moved_bit(codes.high[row], i + 4, 2))};
}
inline __m256i look_up(const int8_t (&table)[16], __m256i index) {
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))),
                             index);
}

inline StepPair steps(const Codes1& codes, int row, int i) {
  return {moved_bit(codes.q[row], i, 1), moved_bit(codes.q[row], i + 4, 1)};
}
inline StepPair steps(const Codes2& codes, int row, int i) { return step_bits(codes, row, i); }
inline StepPair steps(const Codes3& codes, int row, int i) {
  const StepPair all = step_bits(codes, row, i);
  return {_mm256_sub_epi8(all.first, bytes(4)), _mm256_sub_epi8(all.second, bytes(4))};
}
inline StepPair steps(const Codes4& codes, int row, int i) { return step_bits(codes, row, i); }
template <const int8_t (&Values)[16], int Least, class Index>
inline StepPair steps(const CodesOfTable<Values, Least, Index>& codes, int row, int i) {
  const StepPair index = step_bits(codes, row, i);
  return {look_up(Values, index.first), look_up(Values, index.second)};
}
inline StepPair steps(const Codes5& codes, int row, int i) {
  const StepPair low = step_bits(codes, row, i);
  return {_mm256_or_si256(low.first, moved_bit(codes.high[row], i, 4)),
          _mm256_or_si256(low.second, moved_bit(codes.high[row], i + 4, 4))};
}
inline StepPair steps(const Codes6& codes, int row, int i) {
  const StepPair low = step_bits(codes, row, i);
  const auto bits = [&](int part) {  // to bits 4 and 5
    const __m256i high = load32(codes.high[part][row]);
    const __m256i moved = i < 2 ? _mm256_slli_epi16(high, 4 - 2 * i) : _mm256_srli_epi16(high, 2 * i - 4);
    return _mm256_and_si256(moved, bytes(48));
  };
  return {_mm256_sub_epi8(_mm256_or_si256(low.first, bits(0)), bytes(32)),
          _mm256_sub_epi8(_mm256_or_si256(low.second, bits(1)), bytes(32))};
}
inline StepPair steps(const Codes8& codes, int row, int i) {
  return {load32(codes.q[i][row]), load32(codes.q[i + 4][row])};
}

inline __m256i splat_step(const int8_t* x) { return _mm256_set1_epi32(four_bytes(x)); }

// The factors of the two halves of a block, side by side in 16 bits each, for eight rows.
inline __m256i pairs_of(const int8_t (*scale)[2]) { return _mm256_cvtepi8_epi16(load16(scale)); }
inline __m256i pairs_of(const ScaleAndMinNibbles (*scale)[2]) {
  return _mm256_cvtepi8_epi16(_mm_and_si128(load16(scale), _mm_set1_epi8(15)));
}

// Step i of a half of the block, for eight rows.
template <class Codes>
inline __m256i half_step(const Codes& codes, int row, int half, int i) {
  const StepPair pair = steps(codes, row, i);
  return half == 0 ? pair.first : pair.second;
}

#if SLUICE_SIMD_VNNI

// Of up to so many rows of x the registers hold the sums of all parts at once.
template <class Codes>
inline constexpr int kColumnsForAllParts = 4;

// sums[part][c] over a half of the block, added to what is there.
template <int N, class Codes, int C>
inline void add_half(const Codes& codes, int row, int half, const BlockInput* x, IntRows (&sums)[N][C]) {
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    __m256i w[N];
    for (int part = 0; part < N; ++part) {
      w[part] =
          _mm256_add_epi8(half_step(codes, row + part * kRows, half, i), bytes(static_cast<int8_t>(kBias<Codes>)));
    }
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const __m256i in = splat_step(x[c].q + 16 * half + 4 * i);
#pragma GCC unroll 2
      for (int part = 0; part < N; ++part) {
        sums[part][c].v = _mm256_dpbusd_avx_epi32(sums[part][c].v, w[part], in);
        pin(sums[part][c].v);
      }
    }
  }
}

template <int N, int C>
inline void clear(IntRows (&sums)[N][C]) {
  for (int part = 0; part < N; ++part) {
    for (int c = 0; c < C; ++c) sums[part][c].v = _mm256_setzero_si256();
  }
}

template <int N, class Codes, int C>
inline void block_sums(const Codes& codes, int row, const BlockInput* x, IntRows (&sums)[N][C]) {
  clear(sums);
  add_half(codes, row, 0, x, sums);
  add_half(codes, row, 1, x, sums);
}

template <int N, class Codes, class Scale, int C>
inline void scaled_sums(const Codes& codes, int row, const Scale (&scale)[kGroup][2], const BlockInput* x,
                        IntRows (&sums)[N][C]) {
  clear(sums);
  for (int half = 0; half < 2; ++half) {
    IntRows of_half[N][C];
    clear(of_half);
    add_half(codes, row, half, x, of_half);
    for (int part = 0; part < N; ++part) {
      const __m256i pairs = pairs_of(scale + row + part * kRows);
      const __m256i factor = _mm256_srai_epi32(half == 0 ? _mm256_slli_epi32(pairs, 16) : pairs, 16);
      for (int c = 0; c < C; ++c) {
        const IntRows a = subtract(of_half[part][c], kBias<Codes> * x[c].half_sums[half]);
        sums[part][c].v = _mm256_add_epi32(sums[part][c].v, _mm256_mullo_epi32(a.v, factor));
      }
    }
  }
}

#else

// Products of pairs of bytes are summed in 16 bits. So many steps fit: their codes' largest value times 127 times 2
// stays below 2^15.
constexpr int steps_in_16_bits(int largest) { return largest <= 16 ? 8 : largest <= 32 ? 4 : 1; }
template <class Codes>
inline constexpr int kStepsIn16Bits = 1;
template <const int8_t (&Values)[16], int Least, class Index>
inline constexpr int kStepsIn16Bits<CodesOfTable<Values, Least, Index>> = steps_in_16_bits(Least);
template <int Least>
inline constexpr int kStepsIn16Bits<SmallBytes<Least>> = steps_in_16_bits(Least);
template <>
inline constexpr int kStepsIn16Bits<Codes1> = 8;  // 2
template <>
inline constexpr int kStepsIn16Bits<Codes2> = 8;  // 3
template <>
inline constexpr int kStepsIn16Bits<Codes3> = 8;  // 4
template <>
inline constexpr int kStepsIn16Bits<Codes4> = 8;  // 15
template <>
inline constexpr int kStepsIn16Bits<Codes5> = 4;  // 31
template <>
inline constexpr int kStepsIn16Bits<Codes6> = 4;  // 32

template <class Codes>
inline constexpr bool kSigned = true;
template <>
inline constexpr bool kSigned<Codes1> = false;
template <>
inline constexpr bool kSigned<Codes2> = false;
template <>
inline constexpr bool kSigned<Codes4> = false;
template <>
inline constexpr bool kSigned<Codes5> = false;

// Of up to so many rows of x the registers hold the sums of all parts at once.
template <class Codes>
inline constexpr int kColumnsForAllParts = kStepsIn16Bits<Codes> == 4 ? 2 : 4;

template <class Codes>
inline __m256i products(__m256i w, __m256i x) {
  if constexpr (kSigned<Codes>) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  return _mm256_maddubs_epi16(w, x);
}

// 16 lanes of 16 bits: sums[part][c] over the steps of halves [kFirst, kLast].
template <int kFirst, int kLast, int N, class Codes, int C>
inline void sums_16(const Codes& codes, int row, const BlockInput* x, __m256i (&sums)[N][C]) {
#pragma GCC unroll 8
  for (int step = 4 * kFirst; step < 4 * kLast + 4; ++step) {
    __m256i w[N];
    for (int part = 0; part < N; ++part) w[part] = half_step(codes, row + part * kRows, step / 4, step % 4);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const __m256i in = splat_step(x[c].q + 4 * step);
#pragma GCC unroll 2
      for (int part = 0; part < N; ++part) {
        const __m256i product = products<Codes>(w[part], in);
        sums[part][c] = step == 4 * kFirst ? product : _mm256_add_epi16(sums[part][c], product);
        pin(sums[part][c]);
      }
    }
  }
}

// sums[part][c] = the 16-bit sums of both halves, those of each half times a factor.
template <int N, class Codes, int C>
inline void add_halves(const Codes& codes, int row, const BlockInput* x, const __m256i (&factors)[N][2],
                       IntRows (&sums)[N][C]) {
  __m256i half[N][C];
  sums_16<0, 0>(codes, row, x, half);
  for (int part = 0; part < N; ++part) {
    for (int c = 0; c < C; ++c) sums[part][c].v = _mm256_madd_epi16(half[part][c], factors[part][0]);
  }
  sums_16<1, 1>(codes, row, x, half);
  for (int part = 0; part < N; ++part) {
    for (int c = 0; c < C; ++c) {
      sums[part][c].v = _mm256_add_epi32(sums[part][c].v, _mm256_madd_epi16(half[part][c], factors[part][1]));
    }
  }
}

// The same of codes of whose products no two steps fit.
template <int N, class Codes, int C>
inline void add_steps(const Codes& codes, int row, const BlockInput* x, const __m256i (&factors)[N][2],
                      IntRows (&sums)[N][C]) {
#pragma GCC unroll 8
  for (int step = 0; step < kSteps; ++step) {
    __m256i w[N];
    for (int part = 0; part < N; ++part) w[part] = half_step(codes, row + part * kRows, step / 4, step % 4);
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) {
      const __m256i in = splat_step(x[c].q + 4 * step);
#pragma GCC unroll 2
      for (int part = 0; part < N; ++part) {
        const __m256i product = _mm256_madd_epi16(products<Codes>(w[part], in), factors[part][step / 4]);
        sums[part][c].v = step == 0 ? product : _mm256_add_epi32(sums[part][c].v, product);
        pin(sums[part][c].v);
      }
    }
  }
}

template <int N, class Codes, int C>
inline void block_sums(const Codes& codes, int row, const BlockInput* x, IntRows (&sums)[N][C]) {
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (kStepsIn16Bits<Codes> == 8) {
    __m256i all[N][C];
    sums_16<0, 1>(codes, row, x, all);
    for (int part = 0; part < N; ++part) {
      for (int c = 0; c < C; ++c) sums[part][c].v = _mm256_madd_epi16(all[part][c], ones);
    }
  } else if constexpr (kStepsIn16Bits<Codes> == 4) {
    __m256i factors[N][2];
    for (int part = 0; part < N; ++part) factors[part][0] = factors[part][1] = ones;
    add_halves(codes, row, x, factors, sums);
  } else {
    __m256i factors[N][2];
    for (int part = 0; part < N; ++part) factors[part][0] = factors[part][1] = ones;
    add_steps(codes, row, x, factors, sums);
  }
}

template <int N, class Codes, class Scale, int C>
inline void scaled_sums(const Codes& codes, int row, const Scale (&scale)[kGroup][2], const BlockInput* x,
                        IntRows (&sums)[N][C]) {
  __m256i factors[N][2];
  for (int part = 0; part < N; ++part) {
    const __m256i pairs = pairs_of(scale + row + part * kRows);
    factors[part][0] = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(pairs, 0xA0), 0xA0);
    factors[part][1] = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(pairs, 0xF5), 0xF5);
  }
  if constexpr (kStepsIn16Bits<Codes> == 1)
    add_steps(codes, row, x, factors, sums);
  else
    add_halves(codes, row, x, factors, sums);
}

#endif

#else

// Sums lie in memory: one part at a time.
template <class Codes>
inline constexpr int kColumnsForAllParts = 0;

#if SLUICE_SIMD_NEON

// A quarter of the rows: four, a step each.
inline int8x16_t load_step(const void* p) { return vld1q_s8(static_cast<const int8_t*>(p)); }

struct StepPair {
  int8x16_t first, second;
};
inline uint8x16_t low_bits(uint8x16_t all, int from, uint8_t mask) {
  return vandq_u8(vshlq_u8(all, vdupq_n_s8(static_cast<int8_t>(-from))), vdupq_n_u8(mask));
}
inline StepPair step_bits(const Nibbles& codes, int i, int quarter) {
  const uint8x16_t both = vld1q_u8(codes.q[i][4 * quarter]);
  return {vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15))), vreinterpretq_s8_u8(vshrq_n_u8(both, 4))};
}
inline StepPair step_bits(const Crumbs& codes, int i, int quarter) {
  const auto half = [&](int which) {
    return vreinterpretq_s8_u8(low_bits(vld1q_u8(codes.q[which][4 * quarter]), 2 * i, 3));
  };
  return {half(0), half(1)};
}
inline StepPair step_bits(const Crumbs3& codes, int i, int quarter) {
  const StepPair low = step_bits(static_cast<const Crumbs&>(codes), i, quarter);
  const auto third = [&](int step) {
    return vreinterpretq_s8_u8(vshlq_n_u8(low_bits(vld1q_u8(codes.high[4 * quarter]), step, 1), 2));
  };
  return {vorrq_s8(low.first, third(i)), vorrq_s8(low.second, third(i + 4))};
}
inline int8x16_t look_up(const int8_t (&table)[16], int8x16_t index) {
  return vqtbl1q_s8(vld1q_s8(table), vreinterpretq_u8_s8(index));
}
inline StepPair steps(const Codes1& codes, int i, int quarter) {
  const auto doubled = [&](int step) {
    return vreinterpretq_s8_u8(vshlq_n_u8(low_bits(vld1q_u8(codes.q[4 * quarter]), step, 1), 1));
  };
  return {doubled(i), doubled(i + 4)};
}
inline StepPair steps(const Codes2& codes, int i, int quarter) { return step_bits(codes, i, quarter); }
inline StepPair steps(const Codes3& codes, int i, int quarter) {
  const StepPair all = step_bits(codes, i, quarter);
  return {vsubq_s8(all.first, vdupq_n_s8(4)), vsubq_s8(all.second, vdupq_n_s8(4))};
}
inline StepPair steps(const Codes4& codes, int i, int quarter) { return step_bits(codes, i, quarter); }
template <const int8_t (&Values)[16], int Least, class Index>
inline StepPair steps(const CodesOfTable<Values, Least, Index>& codes, int i, int quarter) {
  const StepPair index = step_bits(codes, i, quarter);
  return {look_up(Values, index.first), look_up(Values, index.second)};
}
inline int8x16_t with_bits(int8x16_t low, uint8x16_t high, int from, uint8_t mask) {
  return vorrq_s8(low, vreinterpretq_s8_u8(vshlq_n_u8(low_bits(high, from, mask), 4)));
}
inline StepPair steps(const Codes5& codes, int i, int quarter) {
  const StepPair low = step_bits(codes, i, quarter);
  const uint8x16_t high = vld1q_u8(codes.high[4 * quarter]);
  return {with_bits(low.first, high, i, 1), with_bits(low.second, high, i + 4, 1)};
}
inline StepPair steps(const Codes6& codes, int i, int quarter) {
  const StepPair low = step_bits(codes, i, quarter);
  const auto part = [&](int8x16_t nibble, int half) {
    return vsubq_s8(with_bits(nibble, vld1q_u8(codes.high[half][4 * quarter]), 2 * i, 3), vdupq_n_s8(32));
  };
  return {part(low.first, 0), part(low.second, 1)};
}
inline StepPair steps(const Codes8& codes, int i, int quarter) {
  return {load_step(codes.q[i][4 * quarter]), load_step(codes.q[i + 4][4 * quarter])};
}

template <int Lane>
inline void add_steps(const StepPair& w, int8x16_t x0, int8x16_t x1, int32x4_t& first, int32x4_t& second) {
  first = vdotq_laneq_s32(first, w.first, x0, Lane);
  second = vdotq_laneq_s32(second, w.second, x1, Lane);
}

template <class Codes, int C>
inline void half_sums(const Codes& codes, int row, const BlockInput* x, IntRows (&first)[C], IntRows (&second)[C]) {
  for (int part = 0; part < 2; ++part) {
    const int quarter = row / 4 + part;
    const StepPair w0 = steps(codes, 0, quarter), w1 = steps(codes, 1, quarter);
    const StepPair w2 = steps(codes, 2, quarter), w3 = steps(codes, 3, quarter);
    for (int c = 0; c < C; ++c) {
      const int8x16_t x0 = vld1q_s8(x[c].q), x1 = vld1q_s8(x[c].q + 16);
      int32x4_t a = vdupq_n_s32(0), b = vdupq_n_s32(0);
      add_steps<0>(w0, x0, x1, a, b);
      add_steps<1>(w1, x0, x1, a, b);
      add_steps<2>(w2, x0, x1, a, b);
      add_steps<3>(w3, x0, x1, a, b);
      vst1q_s32(first[c].v + 4 * part, a);
      vst1q_s32(second[c].v + 4 * part, b);
    }
  }
}

#else

template <class Codes, int C>
inline void half_sums(const Codes& codes, int first_row, const BlockInput* x, IntRows (&first)[C],
                      IntRows (&second)[C]) {
  for (int row = 0; row < kRows; ++row) {
    int values[kBlock];
    for (int k = 0; k < kBlock; ++k) values[k] = value_of(codes, first_row + row, k);
    for (int c = 0; c < C; ++c) {
      int32_t a = 0, b = 0;
      for (int k = 0; k < 16; ++k) a += values[k] * x[c].q[k];
      for (int k = 16; k < 32; ++k) b += values[k] * x[c].q[k];
      first[c].v[row] = a;
      second[c].v[row] = b;
    }
  }
}

#endif

template <int N, class Codes, int C>
inline void block_sums(const Codes& codes, int row, const BlockInput* x, IntRows (&sums)[N][C]) {
  for (int part = 0; part < N; ++part) {
    IntRows second[C];
    half_sums(codes, row + part * kRows, x, sums[part], second);
    for (int c = 0; c < C; ++c) {
      for (int i = 0; i < kRows; ++i) sums[part][c].v[i] += second[c].v[i];
    }
  }
}

template <int N, class Codes, class Scale, int C>
inline void scaled_sums(const Codes& codes, int row, const Scale (&scale)[kGroup][2], const BlockInput* x,
                        IntRows (&sums)[N][C]) {
  for (int part = 0; part < N; ++part) {
    IntRows second[C];
    half_sums(codes, row + part * kRows, x, sums[part], second);
    for (int c = 0; c < C; ++c) {
      for (int i = 0; i < kRows; ++i) {
        const Scale(&factors)[2] = scale[row + part * kRows + i];
        sums[part][c].v[i] = sums[part][c].v[i] * factor_of(factors[0]) + second[c].v[i] * factor_of(factors[1]);
      }
    }
  }
}

#endif

// The minima of the two halves of a block.
struct HalfMins {
  Rows first, second;
};
inline HalfMins mins_of_halves(const ScaleAndMinNibbles (*scale)[2]) {
#if SLUICE_SIMD_AVX512
  const __m512i both = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scale)));
  return {{_mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(both, 4), _mm512_set1_epi32(15)))},
          {_mm512_cvtepi32_ps(_mm512_srli_epi32(both, 12))}};
#elif SLUICE_SIMD_X86
  const __m256i both = _mm256_cvtepu16_epi32(load16(scale));
  return {{_mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(both, 4), _mm256_set1_epi32(15)))},
          {_mm256_cvtepi32_ps(_mm256_srli_epi32(both, 12))}};
#else
  uint8_t first[kRows], second[kRows];
  for (int i = 0; i < kRows; ++i) {
    first[i] = static_cast<uint8_t>(min_of(scale[i][0]));
    second[i] = static_cast<uint8_t>(min_of(scale[i][1]));
  }
  return {load_rows(first), load_rows(second)};
#endif
}

}  // namespace sluice::kernels::SLUICE_ISA

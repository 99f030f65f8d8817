// Weights whose codes come from a grid, as bytes.
#pragma once

#include "compute/kernels/packed.h"
#include "compute/kernels/simd.h"

namespace sluice::kernels::SLUICE_ISA {

#if SLUICE_SIMD_X86

// Keeps the compiler from looking everything up first: there are no registers for it.
inline void pin_memory() { asm volatile("" ::: "memory"); }

// Indices of eight rows, in a general register or two: loads are what looking up waits for.
struct ShortIndices {
  uint64_t all;
  size_t operator[](int row) const { return static_cast<uint8_t>(all >> (8 * row)); }
};
struct LongIndices {
  uint64_t first, second;
  size_t operator[](int row) const { return static_cast<uint16_t>((row < 4 ? first : second) >> (16 * (row % 4))); }
};
template <class P>
inline auto row_indices(const P& from, int index, int row) {
  constexpr int kBits = P::kHighBits;
  if constexpr (kBits == 0) {
    ShortIndices indices;
    std::memcpy(&indices, from.low[index] + row, sizeof indices);
    return indices;
  } else {
    const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from.low[index] + row));
    const __m128i high = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from.high[index * kBits / 8] + row));
    const __m128i moved = _mm_srl_epi16(high, _mm_cvtsi32_si128(index * kBits % 8));
    const __m128i both = _mm_unpacklo_epi8(low, _mm_and_si128(moved, _mm_set1_epi8((1 << kBits) - 1)));
    return LongIndices{static_cast<uint64_t>(_mm_cvtsi128_si64(both)),
                       static_cast<uint64_t>(_mm_extract_epi64(both, 1))};
  }
}

// What stands for eight rows: a step, or two of indices that stand for eight values.
template <int Together>
struct GridSteps {
  __m256i of[Together / 4];
};
template <class At>
inline GridSteps<4> grid_steps(const At& at, const int8_t (*grid)[4]) {
  const auto row = [&](int i) { return _mm_cvtsi32_si128(four_bytes(grid[at[i]])); };
  const auto two_rows = [&](int i) {
    const __m128i first = row(i);
    return _mm_unpacklo_epi32(first, row(i + 1));
  };
  const auto four_rows = [&](int i) {
    const __m128i first = two_rows(i);
    return _mm_unpacklo_epi64(first, two_rows(i + 2));
  };
  const __m128i first = four_rows(0);
  return {{_mm256_set_m128i(four_rows(4), first)}};
}
template <class At>
inline GridSteps<8> grid_steps(const At& at, const int8_t (*grid)[8]) {
  const auto row = [&](int i) { return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(grid[at[i]])); };
  const auto two_rows = [&](int i) {
    const __m128i first = row(i);
    return _mm_unpacklo_epi64(first, row(i + 1));
  };
  const auto four_rows = [&](int i) {  // i, i + 1, i + 4, i + 5
    const __m128i first = two_rows(i);
    return _mm256_castsi256_ps(_mm256_set_m128i(two_rows(i + 4), first));
  };
  const __m256 a = four_rows(0), b = four_rows(2);
  return {{_mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88)), _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xDD))}};
}

// Step `odd` of an eight, of eight rows, with its signs. negative: theirs, one byte a row, four times.
inline __m256i with_signs(__m256i values, __m256i negative, bool odd) {
  const __m256i bit = _mm256_set1_epi32(odd ? static_cast<int>(0x80402010) : 0x08040201);
  const __m256i minus = _mm256_cmpeq_epi8(_mm256_and_si256(negative, bit), bit);
  return _mm256_sub_epi8(_mm256_xor_si256(values, minus), minus);
}
inline __m256i four_times(const uint8_t* of_rows) {
  const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3,  //
                                          4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7);
  return _mm256_shuffle_epi8(_mm256_broadcastq_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(of_rows))),
                             spread);
}

// Block `block` of a super-block.
template <class P>
inline void unpack_block(const P& from, const int8_t* grid, int block, Codes8& to) {
  constexpr int kTogether = P::kTogether, kParts = kTogether / 4, kIndices = kBlock / kTogether;
  using Entries = const int8_t(*)[kTogether];
  for (int row = 0; row < kGroup; row += 8) {
#pragma GCC unroll 8
    for (int i = 0; i < kIndices; ++i) {
      const auto values = grid_steps(row_indices(from, block * kIndices + i, row), reinterpret_cast<Entries>(grid));
#pragma GCC unroll 2
      for (int part = 0; part < kParts; ++part) {
        const int step = i * kParts + part;
        __m256i bytes = values.of[part];
        if constexpr (requires { from.negative; })
          bytes = with_signs(bytes, four_times(from.negative[block * 4 + step / 2] + row), step % 2 == 1);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to.q[step][row]), bytes);
        pin_memory();
      }
    }
  }
}

#else

// The signs of step `odd` of an eight, of all rows.
inline void add_signs(const uint8_t (&negative)[kGroup], bool odd, int8_t (&step)[kGroup][4]) {
#if SLUICE_SIMD_NEON
  const uint8x16_t four_times = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  const uint8x16_t bit = vreinterpretq_u8_u32(vdupq_n_u32(odd ? 0x80402010 : 0x08040201));
  const uint8x16_t of_rows = vld1q_u8(negative);
  for (uint8_t row = 0; row < kGroup; row += 4) {
    const uint8x16_t of_four = vqtbl1q_u8(of_rows, vaddq_u8(four_times, vdupq_n_u8(row)));
    const int8x16_t minus = vreinterpretq_s8_u8(vtstq_u8(of_four, bit)), values = vld1q_s8(step[row]);
    vst1q_s8(step[row], vsubq_s8(veorq_s8(values, minus), minus));
  }
#else
  for (int row = 0; row < kGroup; ++row) {
    for (int i = 0; i < 4; ++i) {
      if ((negative[row] >> (4 * odd + i) & 1) != 0) step[row][i] = static_cast<int8_t>(-step[row][i]);
    }
  }
#endif
}

// Block `block` of a super-block.
template <class P>
inline void unpack_block(const P& from, const int8_t* grid, int block, Codes8& to) {
  constexpr int kTogether = P::kTogether, kParts = kTogether / 4, kIndices = kBlock / kTogether;
  for (int i = 0; i < kIndices; ++i) {
    for (int row = 0; row < kGroup; ++row) {
      const int8_t* values = grid + index_of(from, block * kIndices + i, row) * kTogether;
      for (int part = 0; part < kParts; ++part) std::memcpy(to.q[i * kParts + part][row], values + 4 * part, 4);
    }
  }
  if constexpr (requires { from.negative; }) {
    for (int step = 0; step < kSteps; ++step) add_signs(from.negative[block * 4 + step / 2], step % 2 == 1, to.q[step]);
  }
}

#endif

}  // namespace sluice::kernels::SLUICE_ISA

// Weights as the kernels read them: groups of 16 rows, interleaved so that a lane of a vector is a row. An integer sum
// over a block of inputs is then complete in its lane when it is scaled, with every instruction set.
//
// A group is its blocks, one after another: 32 inputs (quantised) or 8 (dense) of 16 rows; those of K-quants share a
// header for 8 blocks. A step is four inputs of every row, 64 bytes: what an int8 dot-product instruction takes.
#pragma once

#include <cstdint>

#include "base/half.h"

namespace sluice::kernels {

inline constexpr int kGroup = 16;      // rows
inline constexpr int kBlock = 32;      // inputs of a quantised block
inline constexpr int kSteps = 8;       // of a block
inline constexpr int kDenseBlock = 8;  // inputs that are summed before they are added to the rest
inline constexpr int kDenseRun = 4;    // blocks, and again runs, that are summed before they are added to the rest
inline constexpr int kBFloatBlock =
    32;  // inputs of weights in bfloat16 that are summed before they are added to the rest

// --- Activations, in panels of 8 rows: all rows of a block of inputs lie side by side. ---

inline constexpr int kPanel = 8;

// One row's part of a quantised block. x is about scale * q.
struct BlockInput {
  float scale, scaled_sum;  // scaled_sum = scale * sum(q), rounded once
  int32_t half_sums[2];     // of the first and of the last 16 values
  int8_t q[kBlock];
};
struct DenseInput {
  float x[kDenseBlock];
};
struct BFloatInput {
  BFloat16 x[kBFloatBlock];
};

// --- Codes: the integers of a block. ---

// Four bits. Low nibbles: steps 0 to 3; high nibbles: steps 4 to 7.
struct Nibbles {
  uint8_t q[4][kGroup][4];  // [step mod 4][row][input]
};
// The value of an input is its nibble.
struct Codes4 : Nibbles {};
// Five bits: bit `step` of `high` is the fifth.
struct Codes5 : Nibbles {
  uint8_t high[kGroup][4];
};
// Six bits: bits 2 (step mod 4) and the next of high[step / 4] are the fifth and sixth. The value is the code - 32.
struct Codes6 : Nibbles {
  uint8_t high[2][kGroup][4];
};
struct Codes8 {
  int8_t q[kSteps][kGroup][4];
};

// Two bits: bits 2 (step mod 4) and the next of q[step / 4].
struct Crumbs {
  uint8_t q[2][kGroup][4];
};
// Three bits: bit `step` of `high` is the third.
struct Crumbs3 : Crumbs {
  uint8_t high[kGroup][4];
};
// One bit: bit `step` of q.
struct Bits {
  uint8_t q[kGroup][4];
};
// The value of an input is twice its bit; its two bits; its three bits less 4.
struct Codes1 : Bits {};
struct Codes2 : Crumbs {};
struct Codes3 : Crumbs3 {};

// The bits are an index into a table, of whose values none is farther from 0 than the least, -Least.
template <const int8_t (&Values)[16], int Least, class Index = Nibbles>
struct CodesOfTable : Index {};
inline constexpr int8_t kNonlinear4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr int8_t kFloat4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
using CodesNonlinear4 = CodesOfTable<kNonlinear4, 127>;
using CodesFloat4 = CodesOfTable<kFloat4, 12>;
// What the grids of IQ1, IQ2, IQ3_XXS and IQ3_S are made of, with both signs; IQ1's eights have its shift added.
inline constexpr int8_t kGrid1[16] = {-9, -7, -1, 1, 7, 9};
inline constexpr int8_t kGrid2[16] = {8, 25, 43, -8, -25, -43};
inline constexpr int8_t kGrid3[16] = {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62};
inline constexpr int8_t kOddGrid3[16] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};
using CodesGrid1 = CodesOfTable<kGrid1, 9, Crumbs3>;
using CodesGrid2 = CodesOfTable<kGrid2, 43, Crumbs3>;
using CodesGrid3 = CodesOfTable<kGrid3, 62>;
using CodesOddGrid3 = CodesOfTable<kOddGrid3, 15>;

// Bytes of which none is farther from 0 than Least.
template <int Least>
struct SmallBytes : Codes8 {};

// --- Scales: what a code is worth, for kBlocks blocks. ---

template <int Blocks = 1>
struct Scale {
  static constexpr int kBlocks = Blocks;
  Half d[kGroup];
};
struct ScaleAndMin {  // d * code + m
  static constexpr int kBlocks = 1;
  Half d[kGroup], m[kGroup];
};
struct ScalePowerOfTwo {
  static constexpr int kBlocks = 1;
  BFloat16 d[kGroup];
};
struct SuperScaleAndMin {  // d * scale[block] * code - dmin * min[block]
  static constexpr int kBlocks = 8;
  Half d[kGroup], dmin[kGroup];
  uint8_t scale[8][kGroup], min[8][kGroup];
};
template <class Factor = Half>
struct SuperScale {  // d * scale[block] * code
  static constexpr int kBlocks = 8;
  Factor d[kGroup];
  int8_t scale[8][kGroup];
};
template <class Factor = Half>
struct SuperScaleHalves {  // d * scale[block][half of the block] * code
  static constexpr int kBlocks = 8;
  Factor d[kGroup];
  int8_t scale[8][kGroup][2];
};
struct ScaleAndMinNibbles {
  uint8_t both;  // the minimum is in the high one
};
struct SuperScaleAndMinHalves {  // d * scale[block][half] * code - dmin * min[block][half]
  static constexpr int kBlocks = 8;
  Half d[kGroup], dmin[kGroup];
  ScaleAndMinNibbles scale[8][kGroup][2];  // and the minimum
};
template <class Scales>
inline constexpr bool kHasHalves = requires(const Scales& s) {
  s.scale[0][0][0];
};
template <class Scales>
inline constexpr bool kHasMinHalves = requires(const Scales& s) {
  s.scale[0][0][0].both;
};

// --- A type of weights is scales and codes; kOffset is subtracted from every code. ---

template <class S, class C, int Offset = 0>
struct Packed {
  using Scales = S;
  using Codes = C;
  static constexpr int kOffset = Offset;
  static constexpr int kInputs = kBlock * S::kBlocks;
  S scales;
  C codes[S::kBlocks];
};
using PackedQ4_0 = Packed<Scale<>, Codes4, 8>;
using PackedQ4_1 = Packed<ScaleAndMin, Codes4>;
using PackedQ5_0 = Packed<Scale<>, Codes5, 16>;
using PackedQ5_1 = Packed<ScaleAndMin, Codes5>;
using PackedQ8_0 = Packed<Scale<>, Codes8>;
using PackedQ4_K = Packed<SuperScaleAndMin, Codes4>;
using PackedQ5_K = Packed<SuperScaleAndMin, Codes5>;
using PackedQ2_K = Packed<SuperScaleAndMinHalves, Codes2>;
using PackedQ3_K = Packed<SuperScaleHalves<>, Codes3>;
using PackedQ6_K = Packed<SuperScaleHalves<>, Codes6>;
using PackedIQ4_NL = Packed<Scale<>, CodesNonlinear4>;
using PackedIQ4_XS = Packed<SuperScale<>, CodesNonlinear4>;
using PackedMXFP4 = Packed<ScalePowerOfTwo, CodesFloat4>;
using PackedTernary = Packed<Scale<8>, Codes2, 1>;  // TQ1_0, TQ2_0
using PackedQ1_0 = Packed<Scale<4>, Codes1, 1>;
using PackedQ2_0 = Packed<Scale<2>, Codes2, 1>;
using PackedIQ1 = Packed<SuperScaleHalves<float>, CodesGrid1>;
using PackedIQ2 = Packed<SuperScaleHalves<float>, CodesGrid2>;
using PackedIQ3_XXS = Packed<SuperScale<float>, CodesGrid3>;
using PackedIQ3_S = Packed<SuperScale<float>, CodesOddGrid3>;

// --- The same types by their indices into a grid, a table of ggml's: one stands for four or eight values together. ---

inline constexpr int kSuperBlock = 256;  // inputs

// The indices of a super-block. A byte of `high` has the bits above eight of 8 / High of them.
template <int Values, int High>
struct Indices {
  static constexpr int kTogether = Values, kIndices = kSuperBlock / Values, kHighBits = High;
  uint8_t low[kIndices][kGroup], high[kIndices * High / 8][kGroup];
};
template <int Values>
struct Indices<Values, 0> {
  static constexpr int kTogether = Values, kIndices = kSuperBlock / Values, kHighBits = 0;
  uint8_t low[kIndices][kGroup];
};
// Bit i of an eight of inputs: what the grid says of the i-th is negated.
struct Signs {
  uint8_t negative[kSuperBlock / 8][kGroup];
};
struct NoSigns {};
// Scales are odd: nibbles n stand for 2 n + 1. Of blocks 2 i and 2 i + 1, or of the two halves of a block.
struct OddScales {
  Half d[kGroup];
  uint8_t scale[4][kGroup];
};
struct OddScaleHalves {
  Half d[kGroup];
  uint8_t scale[8][kGroup];
};
// A value is d * scale * Eighths / 8 times what the grid says, which is never farther from 0 than Least. OfRows: the
// scales beside which codes are multiplied, the same as when the type is packed by codes.
template <class Scales, class At, class Negative, class OfRows, int Eighths, int Least>
struct Indexed : Scales, At, Negative {
  using Unpacked = Packed<OfRows, SmallBytes<Least>>;
  static constexpr int kInputs = kSuperBlock;
  static constexpr float kUnit = Eighths / 8.0f;
};
// IQ1's highest bit says in which direction the eight is shifted.
using IndexedIQ1_S = Indexed<OddScales, Indices<8, 4>, NoSigns, SuperScaleHalves<float>, 1, 9>;
using IndexedIQ1_M = Indexed<OddScaleHalves, Indices<8, 4>, NoSigns, SuperScaleHalves<float>, 1, 9>;
using IndexedIQ2_XXS = Indexed<OddScales, Indices<8, 0>, Signs, SuperScaleHalves<float>, 1, 43>;
using IndexedIQ2_XS = Indexed<OddScaleHalves, Indices<8, 1>, Signs, SuperScaleHalves<float>, 1, 43>;
using IndexedIQ2_S = Indexed<OddScaleHalves, Indices<8, 2>, Signs, SuperScaleHalves<float>, 1, 43>;
using IndexedIQ3_XXS = Indexed<OddScales, Indices<4, 0>, Signs, SuperScale<float>, 2, 62>;
using IndexedIQ3_S = Indexed<OddScales, Indices<4, 1>, Signs, SuperScale<float>, 8, 15>;

// --- One value at a time: what the layouts above mean. ---

#define SLUICE_INLINE [[gnu::always_inline]] inline

SLUICE_INLINE int bits_of(const Nibbles& codes, int row, int k) {
  const int both = codes.q[k / 4 % 4][row][k % 4];
  return k < 16 ? both & 15 : both >> 4;
}
SLUICE_INLINE int bits_of(const Crumbs& codes, int row, int k) {
  return codes.q[k / 16][row][k % 4] >> (2 * (k / 4 % 4)) & 3;
}
SLUICE_INLINE int bits_of(const Bits& codes, int row, int k) { return codes.q[row][k % 4] >> (k / 4) & 1; }
SLUICE_INLINE int bits_of(const Crumbs3& codes, int row, int k) {
  return bits_of(static_cast<const Crumbs&>(codes), row, k) + 4 * (codes.high[row][k % 4] >> (k / 4) & 1);
}
SLUICE_INLINE int value_of(const Codes1& codes, int row, int k) { return 2 * bits_of(codes, row, k); }
SLUICE_INLINE int value_of(const Codes2& codes, int row, int k) { return bits_of(codes, row, k); }
SLUICE_INLINE int value_of(const Codes3& codes, int row, int k) { return bits_of(codes, row, k) - 4; }
SLUICE_INLINE int value_of(const Codes4& codes, int row, int k) { return bits_of(codes, row, k); }
template <const int8_t (&Values)[16], int Least, class Index>
SLUICE_INLINE int value_of(const CodesOfTable<Values, Least, Index>& codes, int row, int k) {
  return Values[bits_of(codes, row, k)];
}
SLUICE_INLINE int value_of(const Codes5& codes, int row, int k) {
  return bits_of(codes, row, k) + 16 * (codes.high[row][k % 4] >> (k / 4) & 1);
}
SLUICE_INLINE int value_of(const Codes6& codes, int row, int k) {
  return bits_of(codes, row, k) + 16 * (codes.high[k / 16][row][k % 4] >> (2 * (k / 4 % 4)) & 3) - 32;
}
SLUICE_INLINE int value_of(const Codes8& codes, int row, int k) { return codes.q[k / 4][row][k % 4]; }

SLUICE_INLINE int factor_of(int8_t scale) { return scale; }
SLUICE_INLINE int factor_of(ScaleAndMinNibbles scale) { return scale.both & 15; }
SLUICE_INLINE int min_of(ScaleAndMinNibbles scale) { return scale.both >> 4; }

// The scale of input k of a block, and what is added.
template <class Scales>
SLUICE_INLINE float scale_of(const Scales& s, int row, int block, int k) {
  if constexpr (kHasHalves<Scales>)
    return to_f32(s.d[row]) * static_cast<float>(factor_of(s.scale[block][row][k / 16]));
  else if constexpr (requires { s.scale; })
    return to_f32(s.d[row]) * static_cast<float>(s.scale[block][row]);
  else
    return to_f32(s.d[row]);
}
template <class Scales>
SLUICE_INLINE float min_of(const Scales&, int, int, int) {
  return 0.0f;
}
SLUICE_INLINE float min_of(const ScaleAndMin& s, int row, int, int) { return to_f32(s.m[row]); }
SLUICE_INLINE float min_of(const SuperScaleAndMin& s, int row, int block, int) {
  return -(to_f32(s.dmin[row]) * static_cast<float>(s.min[block][row]));
}
SLUICE_INLINE float min_of(const SuperScaleAndMinHalves& s, int row, int block, int k) {
  return -(to_f32(s.dmin[row]) * static_cast<float>(min_of(s.scale[block][row][k / 16])));
}

// Where in its grid an index stands.
template <class P>
SLUICE_INLINE int index_of(const P& packed, int entry, int row) {
  constexpr int kBits = P::kHighBits;
  if constexpr (kBits == 0)
    return packed.low[entry][row];
  else
    return packed.low[entry][row] | (packed.high[entry * kBits / 8][row] >> (entry * kBits % 8) & ((1 << kBits) - 1))
                                        << 8;
}
template <class P>
SLUICE_INLINE int grid_value(const P& packed, const int8_t* grid, int row, int k) {
  const int value = grid[index_of(packed, k / P::kTogether, row) * P::kTogether + k % P::kTogether];
  if constexpr (requires { packed.negative; })
    return (packed.negative[k / 8][row] >> (k % 8) & 1) != 0 ? -value : value;
  else
    return value;
}
SLUICE_INLINE int odd(int bits) { return 2 * bits + 1; }
SLUICE_INLINE int8_t scale_at(const OddScales& s, int row, int b, int) {
  return static_cast<int8_t>(odd(s.scale[b / 2][row] >> (4 * (b % 2)) & 15));
}
SLUICE_INLINE int8_t scale_at(const OddScaleHalves& s, int row, int b, int half) {
  return static_cast<int8_t>(odd(s.scale[b][row] >> (4 * half) & 15));
}
template <class P>
SLUICE_INLINE void unpack_scales(const P& from, int row, SuperScale<float>& to) {
  to.d[row] = to_f32(from.d[row]) * P::kUnit;
  for (int b = 0; b < 8; ++b) to.scale[b][row] = scale_at(from, row, b, 0);
}
template <class P>
SLUICE_INLINE void unpack_scales(const P& from, int row, SuperScaleHalves<float>& to) {
  to.d[row] = to_f32(from.d[row]) * P::kUnit;
  for (int i = 0; i < 16; ++i) to.scale[i / 2][row][i % 2] = scale_at(from, row, i / 2, i % 2);
}

// --- Dense weights; beyond the last input stand zeros. ---

struct DenseF32 {
  static constexpr int kInputs = kDenseBlock;
  float w[kDenseBlock][kGroup];
};
struct DenseF16 {
  static constexpr int kInputs = kDenseBlock;
  Half w[kDenseBlock][kGroup];
};
struct DenseBF16 {  // inputs 2 i and 2 i + 1 of a row side by side
  static constexpr int kInputs = kBFloatBlock;
  BFloat16 w[kBFloatBlock / 2][kGroup][2];
};

}  // namespace sluice::kernels

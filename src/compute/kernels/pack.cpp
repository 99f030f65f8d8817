#include "compute/kernels/pack.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <iterator>

#include "compute/kernels/grid_files.h"
#include "compute/kernels/grids.h"
#include "compute/kernels/packed.h"

namespace sluice::kernels {
namespace {

// --- The layouts of GGUF files. ---

struct FileQ4_0 {
  Half d;
  uint8_t q[16];  // low nibbles: inputs 0 … 15, high nibbles: 16 … 31; likewise below
};
struct FileQ4_1 {
  Half d, m;
  uint8_t q[16];
};
struct FileQ5_0 {
  Half d;
  uint8_t high[4], q[16];  // bit k of `high`, little-endian: the fifth of input k
};
struct FileQ5_1 {
  Half d, m;
  uint8_t high[4], q[16];
};
struct FileQ8_0 {
  Half d;
  int8_t q[32];
};
struct FileQ4_K {
  Half d, dmin;
  uint8_t scales[12];
  uint8_t q[4][32];  // [pair of blocks][input]: low nibbles the even, high nibbles the odd block
};
struct FileQ5_K {
  Half d, dmin;
  uint8_t scales[12];
  uint8_t high[32];  // bit b of high[k]: the fifth of input k of block b
  uint8_t q[4][32];
};
struct FileQ6_K {
  uint8_t low[2][2][32];  // [half][block mod 2][input]: low nibbles blocks 0, 1 of the half, high nibbles 2, 3
  uint8_t high[2][32];    // bits 2 b and 2 b + 1: of block b of the half
  int8_t scales[16];      // of 16 inputs each
  Half d;
};
struct FileIQ4_NL {
  Half d;
  uint8_t q[16];
};
struct FileIQ4_XS {
  Half d;
  uint8_t scales_high[2];
  uint8_t scales_low[4];
  uint8_t q[8][16];
};
struct FileMXFP4 {
  uint8_t exponent;
  uint8_t q[16];
};
struct FileQ2_K {
  uint8_t scales[16];  // of 16 inputs each: the low nibble; the high nibble is the minimum's
  uint8_t q[2][32];    // [half][input]: bits 2 b and 2 b + 1: block b of the half
  Half d, dmin;
};
struct FileQ3_K {
  uint8_t high[32];  // bit b of high[k]: the third of input k of block b
  uint8_t q[2][32];  // the others, as above
  uint8_t scales[12];
  Half d;
};
struct FileTQ2_0 {
  uint8_t q[2][32];  // as above
  Half d;
};
// Bytes are fractions of 256, whose digits to base 3 are codes: the first digits of all, the second ones, and so on.
struct FileTQ1_0 {
  uint8_t fives[32], fives16[16], fours[4];  // of five, five and four digits
  Half d;
};
struct FileQ1_0 {
  Half d;
  uint8_t q[16];  // bits
};
struct FileQ2_0 {
  Half d;
  uint8_t q[16];  // pairs of bits
};
static_assert(sizeof(FileQ2_K) == 84 && sizeof(FileQ3_K) == 110 && sizeof(FileTQ1_0) == 54 && sizeof(FileTQ2_0) == 66);
static_assert(sizeof(FileQ1_0) == 18 && sizeof(FileQ2_0) == 18);
static_assert(sizeof(FileQ4_0) == 18 && sizeof(FileQ4_1) == 20 && sizeof(FileQ5_0) == 22 && sizeof(FileQ5_1) == 24);
static_assert(sizeof(FileQ8_0) == 34 && sizeof(FileQ4_K) == 144 && sizeof(FileQ5_K) == 176 && sizeof(FileQ6_K) == 210);
static_assert(sizeof(FileIQ4_NL) == 18 && sizeof(FileIQ4_XS) == 136 && sizeof(FileMXFP4) == 17);

// --- One row's part of a packed block. ---

using CodesOfRow = uint8_t[kBlock];  // before they are interleaved

void put(const CodesOfRow& codes, int row, Nibbles& to) {
  uint8_t both[16];
  for (int k = 0; k < 16; ++k) both[k] = static_cast<uint8_t>((codes[k] & 15) | codes[k + 16] << 4);
  for (int i = 0; i < 4; ++i) std::memcpy(to.q[i][row], both + 4 * i, 4);
}
// Bit `from` of each code.
void put_bits(const CodesOfRow& codes, int from, int row, uint8_t (&to)[kGroup][4]) {
  for (int j = 0; j < 4; ++j) {
    int bits = 0;
    for (int step = 0; step < kSteps; ++step) bits |= (codes[4 * step + j] >> from & 1) << step;
    to[row][j] = static_cast<uint8_t>(bits);
  }
}
void put(const CodesOfRow& codes, int row, Codes5& to) {
  put(codes, row, static_cast<Nibbles&>(to));
  put_bits(codes, 4, row, to.high);
}
// Bits `from` and the next of each code.
void put_pairs(const CodesOfRow& codes, int from, int row, uint8_t (&to)[2][kGroup][4]) {
  for (int half = 0; half < 2; ++half) {
    for (int j = 0; j < 4; ++j) {
      int bits = 0;
      for (int step = 0; step < 4; ++step) bits |= (codes[16 * half + 4 * step + j] >> from & 3) << (2 * step);
      to[half][row][j] = static_cast<uint8_t>(bits);
    }
  }
}
void put(const CodesOfRow& codes, int row, Codes6& to) {
  put(codes, row, static_cast<Nibbles&>(to));
  put_pairs(codes, 4, row, to.high);
}
void put(const CodesOfRow& codes, int row, Bits& to) { put_bits(codes, 0, row, to.q); }
void put(const CodesOfRow& codes, int row, Crumbs& to) { put_pairs(codes, 0, row, to.q); }
void put(const CodesOfRow& codes, int row, Crumbs3& to) {
  put_pairs(codes, 0, row, to.q);
  put_bits(codes, 2, row, to.high);
}
void put(const CodesOfRow& codes, int row, Codes8& to) {
  for (int step = 0; step < kSteps; ++step) std::memcpy(to.q[step][row], codes + 4 * step, 4);
}

// --- The codes of block b of a file's block. ---

void read_nibbles(const uint8_t (&q)[16], CodesOfRow& codes) {
  for (int k = 0; k < 16; ++k) {
    codes[k] = q[k] & 15;
    codes[k + 16] = q[k] >> 4;
  }
}
// Blocks 2 i and 2 i + 1 of a super-block share the bytes i: low nibbles are the even one's.
void read_half_bytes(const uint8_t (&q)[32], bool high, CodesOfRow& codes) {
  for (int k = 0; k < kBlock; ++k) codes[k] = high ? q[k] >> 4 : q[k] & 15;
}
void add_high_bits(uint8_t& code, int bits) { code = static_cast<uint8_t>(code | bits << 4); }
template <class File>
void read_fives(const File& from, CodesOfRow& codes) {
  read_nibbles(from.q, codes);
  for (int k = 0; k < kBlock; ++k) add_high_bits(codes[k], from.high[k / 8] >> (k % 8) & 1);
}

template <class File>  // whose codes are nibbles
void read(const File& from, int, CodesOfRow& codes) {
  read_nibbles(from.q, codes);
}
void read(const FileQ5_0& from, int, CodesOfRow& codes) { read_fives(from, codes); }
void read(const FileQ5_1& from, int, CodesOfRow& codes) { read_fives(from, codes); }
void read(const FileQ8_0& from, int, CodesOfRow& codes) { std::memcpy(codes, from.q, sizeof codes); }
void read(const FileQ4_K& from, int b, CodesOfRow& codes) { read_half_bytes(from.q[b / 2], b % 2 == 1, codes); }
void read(const FileQ5_K& from, int b, CodesOfRow& codes) {
  read_half_bytes(from.q[b / 2], b % 2 == 1, codes);
  for (int k = 0; k < kBlock; ++k) add_high_bits(codes[k], from.high[k] >> b & 1);
}
void read(const FileQ6_K& from, int b, CodesOfRow& codes) {
  read_half_bytes(from.low[b / 4][b % 2], b % 4 >= 2, codes);
  for (int k = 0; k < kBlock; ++k) add_high_bits(codes[k], from.high[b / 4][k] >> (2 * (b % 4)) & 3);
}
void read(const FileIQ4_XS& from, int b, CodesOfRow& codes) { read_nibbles(from.q[b], codes); }
// Blocks 4 i to 4 i + 3 share the bytes i.
void read_pairs(const uint8_t (&q)[2][32], int b, CodesOfRow& codes) {
  for (int k = 0; k < kBlock; ++k) codes[k] = q[b / 4][k] >> (2 * (b % 4)) & 3;
}
void read(const FileQ2_K& from, int b, CodesOfRow& codes) { read_pairs(from.q, b, codes); }
void read(const FileQ3_K& from, int b, CodesOfRow& codes) {
  read_pairs(from.q, b, codes);
  for (int k = 0; k < kBlock; ++k) codes[k] = static_cast<uint8_t>(codes[k] | (from.high[k] >> b & 1) << 2);
}
void read(const FileTQ2_0& from, int b, CodesOfRow& codes) { read_pairs(from.q, b, codes); }
void read(const FileTQ1_0& from, int b, CodesOfRow& codes) {
  constexpr uint8_t kPowers[] = {1, 3, 9, 27, 81};
  const auto digit = [&](const auto& of, int at) {
    const auto n = static_cast<int>(std::size(of));
    const auto rest = static_cast<uint8_t>(of[at % n] * kPowers[at / n]);
    return static_cast<uint8_t>(rest * 3 >> 8);
  };
  for (int k = 0; k < kBlock; ++k) {
    const int at = kBlock * b + k;
    codes[k] = at < 160   ? digit(from.fives, at)
               : at < 240 ? digit(from.fives16, at - 160)
                          : digit(from.fours, at - 240);
  }
}
void read(const FileQ1_0& from, int b, CodesOfRow& codes) {
  for (int k = 0; k < kBlock; ++k) codes[k] = from.q[4 * b + k / 8] >> (k % 8) & 1;
}
void read(const FileQ2_0& from, int b, CodesOfRow& codes) {
  for (int k = 0; k < kBlock; ++k) codes[k] = from.q[8 * b + k / 4] >> (2 * (k % 4)) & 3;
}

// --- Its scales. ---

template <class File, int Blocks>
void put_scales(const File& from, int row, Scale<Blocks>& to) {
  to.d[row] = from.d;
}
template <class File>
void put_scales(const File& from, int row, ScaleAndMin& to) {
  to.d[row] = from.d;
  to.m[row] = from.m;
}
// The eight 6-bit scales and minima of Q4_K and Q5_K.
template <class File>
void put_scales(const File& from, int row, SuperScaleAndMin& to) {
  to.d[row] = from.d;
  to.dmin[row] = from.dmin;
  const uint8_t* s = from.scales;
  for (int b = 0; b < 4; ++b) {
    to.scale[b][row] = s[b] & 63;
    to.min[b][row] = s[b + 4] & 63;
    to.scale[b + 4][row] = static_cast<uint8_t>((s[b + 8] & 15) | s[b] >> 6 << 4);
    to.min[b + 4][row] = static_cast<uint8_t>(s[b + 8] >> 4 | s[b + 4] >> 6 << 4);
  }
}
void put_scales(const FileQ6_K& from, int row, SuperScaleHalves<>& to) {
  to.d[row] = from.d;
  for (int i = 0; i < 16; ++i) to.scale[i / 2][row][i % 2] = from.scales[i];
}
void put_scales(const FileQ2_K& from, int row, SuperScaleAndMinHalves& to) {
  to.d[row] = from.d;
  to.dmin[row] = from.dmin;
  for (int i = 0; i < 16; ++i) to.scale[i / 2][row][i % 2] = {from.scales[i]};
}
void put_scales(const FileQ3_K& from, int row, SuperScaleHalves<>& to) {
  to.d[row] = from.d;
  for (int i = 0; i < 16; ++i) {
    const int low = from.scales[i % 8] >> (4 * (i / 8)) & 15, high = from.scales[8 + i % 4] >> (2 * (i / 4)) & 3;
    to.scale[i / 2][row][i % 2] = static_cast<int8_t>((low | high << 4) - 32);
  }
}
void put_scales(const FileIQ4_XS& from, int row, SuperScale<>& to) {
  to.d[row] = from.d;
  for (int b = 0; b < 8; ++b) {
    const int low = from.scales_low[b / 2] >> (4 * (b % 2)) & 15, high = from.scales_high[b / 4] >> (2 * (b % 4)) & 3;
    to.scale[b][row] = static_cast<int8_t>((low | high << 4) - 32);
  }
}
// 2^(e - 128): the codes are doubled. As bfloat16; the two smallest are subnormal.
void put_scales(const FileMXFP4& from, int row, ScalePowerOfTwo& to) {
  const int e = from.exponent;
  to.d[row] = {static_cast<uint16_t>(e < 2 ? 0x20 << e : (e - 1) << 7)};
}

template <class File>
void put_scales(const File& from, int row, SuperScale<float>& to) {
  to.d[row] = to_f32(from.factor()) * File::Indexed::kUnit;
  for (int b = 0; b < 8; ++b) to.scale[b][row] = static_cast<int8_t>(odd(from.nibble(b, 0)));
}
template <class File>
void put_scales(const File& from, int row, SuperScaleHalves<float>& to) {
  to.d[row] = to_f32(from.factor()) * File::Indexed::kUnit;
  for (int i = 0; i < 16; ++i) to.scale[i / 2][row][i % 2] = static_cast<int8_t>(odd(from.nibble(i / 2, i % 2)));
}
template <class File>
void put_scales(const File& from, int row, OddScales& to) {
  for (int b = 0; b < 8; b += 2)
    to.scale[b / 2][row] = static_cast<uint8_t>(from.nibble(b, 0) | from.nibble(b + 1, 0) << 4);
}
template <class File>
void put_scales(const File& from, int row, OddScaleHalves& to) {
  for (int b = 0; b < 8; ++b) to.scale[b][row] = static_cast<uint8_t>(from.nibble(b, 0) | from.nibble(b, 1) << 4);
}

// A file's block of `Inputs` inputs.
template <int Inputs, class File, class P>
void place(const File& from, int row, P* to) {
  for (int b = 0; b < Inputs / kBlock; ++b) {
    P& packed = to[b / P::Scales::kBlocks];
    if (b % P::Scales::kBlocks == 0) put_scales(from, row, packed.scales);
    CodesOfRow codes;
    read(from, b, codes);
    put(codes, row, packed.codes[b % P::Scales::kBlocks]);
  }
}

// Where in a table a value stands.
template <const int8_t (&Values)[16], int Least, class Index>
constexpr std::array<uint8_t, 256> places_in(const CodesOfTable<Values, Least, Index>&) {
  std::array<uint8_t, 256> places{};
  for (int i = 15; i >= 0; --i) places[static_cast<uint8_t>(Values[i])] = static_cast<uint8_t>(i);
  return places;
}

// Codes from grids.
template <int Inputs, class File, class P>
requires(File::kForm != WeightForm{} && Inputs == kSuperBlock) void place(const File& from, int row, P* to) {
  static constexpr std::array<uint8_t, 256> kPlaces = places_in(typename P::Codes{});
  constexpr int kTogether = File::Indexed::kTogether;
  const int8_t* const grid = grid_of(File::kForm);
  put_scales(from, row, to->scales);
  for (int first = 0; first < Inputs; first += kBlock) {
    CodesOfRow codes;
    for (int k = first; k < first + kBlock; ++k) {
      int value = grid[from.index(k / kTogether) * kTogether + k % kTogether];
      if constexpr (requires { from.negative(0); }) {
        if ((from.negative(k / 8) >> (k % 8) & 1) != 0) value = -value;
      }
      codes[k - first] = kPlaces[static_cast<uint8_t>(value)];
    }
    put(codes, row, to->codes[first / kBlock]);
  }
}

// --- Whole matrices. ---

template <class File, class P, int FileInputs = P::kInputs>
struct QuantisedRows {
  static constexpr int kPackedBlocks = FileInputs / P::kInputs;  // of a file's block

  static size_t group_bytes(int64_t n_in) { return static_cast<size_t>(n_in / P::kInputs) * sizeof(P); }

  static void pack_row(const std::byte* from, int64_t n_in, int row, std::byte* group) {
    auto* to = reinterpret_cast<P*>(group);
    for (int64_t i = 0; i < n_in / FileInputs; ++i) {
      File block;
      std::memcpy(&block, from + static_cast<size_t>(i) * sizeof(File), sizeof block);
      place<FileInputs>(block, row, to + i * kPackedBlocks);
    }
  }

  static void to_floats(const std::byte* from, std::span<float> out) {
    for (size_t i = 0; i * FileInputs < out.size(); ++i) {
      P packed[kPackedBlocks] = {};
      pack_row(from + i * sizeof(File), FileInputs, 0, reinterpret_cast<std::byte*>(packed));
      for (int at = 0; at < FileInputs; ++at) {
        const P& one = packed[at / P::kInputs];
        const int block = at % P::kInputs / kBlock, k = at % kBlock;
        const int code = value_of(one.codes[block], 0, k) - P::kOffset;
        out[i * FileInputs + static_cast<size_t>(at)] =
            scale_of(one.scales, 0, block, k) * static_cast<float>(code) + min_of(one.scales, 0, block, k);
      }
    }
  }
};

// Those that keep their indices into a grid.
template <class File>
struct IndexedRows {
  using P = typename File::Indexed;

  static size_t group_bytes(int64_t n_in) { return static_cast<size_t>(n_in / kSuperBlock) * sizeof(P); }

  static void place(const File& from, int row, P& to) {
    to.d[row] = from.factor();
    put_scales(from, row, to);
    for (int i = 0; i < P::kIndices; ++i) {
      const int index = from.index(i);
      to.low[i][row] = static_cast<uint8_t>(index);
      if constexpr (constexpr int kBits = P::kHighBits; kBits > 0) {
        uint8_t& high = to.high[i * kBits / 8][row];
        high = static_cast<uint8_t>(high | index >> 8 << (i * kBits % 8));
      }
    }
    if constexpr (requires { to.negative; }) {
      for (int i = 0; i < kSuperBlock / 8; ++i) to.negative[i][row] = from.negative(i);
    }
  }

  static void pack_row(const std::byte* from, int64_t n_in, int row, std::byte* group) {
    auto* to = reinterpret_cast<P*>(group);
    for (int64_t i = 0; i < n_in / kSuperBlock; ++i) {
      File block;
      std::memcpy(&block, from + static_cast<size_t>(i) * sizeof(File), sizeof block);
      place(block, row, to[i]);
    }
  }

  static void to_floats(const std::byte* from, std::span<float> out) {
    const int8_t* const grid = grid_of(File::kForm);
    for (size_t i = 0; i * kSuperBlock < out.size(); ++i) {
      P packed = {};
      pack_row(from + i * sizeof(File), kSuperBlock, 0, reinterpret_cast<std::byte*>(&packed));
      typename P::Unpacked::Scales scales = {};
      unpack_scales(packed, 0, scales);
      for (int at = 0; at < kSuperBlock; ++at) {
        out[i * kSuperBlock + static_cast<size_t>(at)] =
            scale_of(scales, 0, at / kBlock, at % kBlock) * static_cast<float>(grid_value(packed, grid, 0, at));
      }
    }
  }
};

void place(float value, int k, int row, DenseF32& to) { to.w[k][row] = value; }
void place(Half value, int k, int row, DenseF16& to) { to.w[k][row] = value; }
void place(BFloat16 value, int k, int row, DenseBF16& to) { to.w[k / 2][row][k % 2] = value; }

template <class Value, class Block>
struct DenseRows {
  static size_t group_bytes(int64_t n_in) {
    return static_cast<size_t>((n_in + Block::kInputs - 1) / Block::kInputs) * sizeof(Block);
  }
  static void pack_row(const std::byte* from, int64_t n_in, int row, std::byte* group) {
    auto* to = reinterpret_cast<Block*>(group);
    for (int64_t k = 0; k < n_in; ++k) {
      Value value;
      std::memcpy(&value, from + static_cast<size_t>(k) * sizeof value, sizeof value);
      place(value, static_cast<int>(k % Block::kInputs), row, to[k / Block::kInputs]);
    }
  }
  static void to_floats(const std::byte* from, std::span<float> out) {
    for (size_t k = 0; k < out.size(); ++k) {
      Value value;
      std::memcpy(&value, from + k * sizeof value, sizeof value);
      out[k] = to_f32(value);
    }
  }
};

// A type of weights, and how its rows are packed.
struct Form {
  ggml_type type;
  size_t (*group_bytes)(int64_t n_in);
  void (*pack_row)(const std::byte* from, int64_t n_in, int row, std::byte* group);
  void (*to_floats)(const std::byte* from, std::span<float> out);
};
template <class Rows>
constexpr Form form_of(ggml_type type) {
  return {type, Rows::group_bytes, Rows::pack_row, Rows::to_floats};
}
constexpr Form kForms[] = {
    // in the order of WeightForm
    form_of<DenseRows<float, DenseF32>>(GGML_TYPE_F32),
    form_of<DenseRows<Half, DenseF16>>(GGML_TYPE_F16),
    form_of<DenseRows<BFloat16, DenseBF16>>(GGML_TYPE_BF16),
    form_of<QuantisedRows<FileQ4_0, PackedQ4_0>>(GGML_TYPE_Q4_0),
    form_of<QuantisedRows<FileQ4_1, PackedQ4_1>>(GGML_TYPE_Q4_1),
    form_of<QuantisedRows<FileQ5_0, PackedQ5_0>>(GGML_TYPE_Q5_0),
    form_of<QuantisedRows<FileQ5_1, PackedQ5_1>>(GGML_TYPE_Q5_1),
    form_of<QuantisedRows<FileQ8_0, PackedQ8_0>>(GGML_TYPE_Q8_0),
    form_of<QuantisedRows<FileQ4_K, PackedQ4_K>>(GGML_TYPE_Q4_K),
    form_of<QuantisedRows<FileQ5_K, PackedQ5_K>>(GGML_TYPE_Q5_K),
    form_of<QuantisedRows<FileQ6_K, PackedQ6_K>>(GGML_TYPE_Q6_K),
    form_of<QuantisedRows<FileIQ4_NL, PackedIQ4_NL>>(GGML_TYPE_IQ4_NL),
    form_of<QuantisedRows<FileIQ4_XS, PackedIQ4_XS>>(GGML_TYPE_IQ4_XS),
    form_of<QuantisedRows<FileMXFP4, PackedMXFP4>>(GGML_TYPE_MXFP4),
    form_of<QuantisedRows<FileQ2_K, PackedQ2_K>>(GGML_TYPE_Q2_K),
    form_of<QuantisedRows<FileQ3_K, PackedQ3_K>>(GGML_TYPE_Q3_K),
    form_of<QuantisedRows<FileTQ1_0, PackedTernary>>(GGML_TYPE_TQ1_0),
    form_of<QuantisedRows<FileTQ2_0, PackedTernary>>(GGML_TYPE_TQ2_0),
    form_of<QuantisedRows<FileQ1_0, PackedQ1_0>>(GGML_TYPE_Q1_0),
    form_of<QuantisedRows<FileQ2_0, PackedQ2_0>>(GGML_TYPE_Q2_0),
    form_of<QuantisedRows<FileIQ1_S, PackedIQ1>>(GGML_TYPE_IQ1_S),
    form_of<QuantisedRows<FileIQ1_M, PackedIQ1>>(GGML_TYPE_IQ1_M),
    form_of<QuantisedRows<FileIQ2_XXS, PackedIQ2>>(GGML_TYPE_IQ2_XXS),
    form_of<QuantisedRows<FileIQ2_XS, PackedIQ2>>(GGML_TYPE_IQ2_XS),
    form_of<QuantisedRows<FileIQ2_S, PackedIQ2>>(GGML_TYPE_IQ2_S),
    form_of<QuantisedRows<FileIQ3_XXS, PackedIQ3_XXS>>(GGML_TYPE_IQ3_XXS),
    form_of<QuantisedRows<FileIQ3_S, PackedIQ3_S>>(GGML_TYPE_IQ3_S),
    form_of<IndexedRows<FileIQ1_S>>(GGML_TYPE_IQ1_S),
    form_of<IndexedRows<FileIQ1_M>>(GGML_TYPE_IQ1_M),
    form_of<IndexedRows<FileIQ2_XXS>>(GGML_TYPE_IQ2_XXS),
    form_of<IndexedRows<FileIQ2_XS>>(GGML_TYPE_IQ2_XS),
    form_of<IndexedRows<FileIQ2_S>>(GGML_TYPE_IQ2_S),
    form_of<IndexedRows<FileIQ3_XXS>>(GGML_TYPE_IQ3_XXS),
    form_of<IndexedRows<FileIQ3_S>>(GGML_TYPE_IQ3_S),
};
static_assert(std::size(kForms) == kWeightForms);

std::atomic<bool> indices_kept = false;

const Form& form(WeightForm of) { return kForms[static_cast<int>(of)]; }

}  // namespace

std::optional<WeightForm> packed_form(ggml_type type) {
  const std::span<const Form> all(kForms);
  const auto found = std::ranges::find(all, type, &Form::type);
  if (found == all.end()) return std::nullopt;
  const auto indexed = std::find_if(found + 1, all.end(), [&](const Form& other) { return other.type == type; });
  return static_cast<WeightForm>((indices_kept && indexed != all.end() ? indexed : found) - all.begin());
}

void keep_indices(bool keep) { indices_kept = keep; }

bool indices_are_kept() { return indices_kept; }

InputForm input_form(WeightForm form) {
  if (form == WeightForm::kBF16) return InputForm::kBFloats;
  return form == WeightForm::kF32 || form == WeightForm::kF16 ? InputForm::kFloats : InputForm::kBlocks;
}

size_t packed_bytes(WeightForm of, int64_t n_in, int64_t n_out) {
  return static_cast<size_t>((n_out + kGroup - 1) / kGroup) * form(of).group_bytes(n_in);
}

void pack_groups(WeightForm of, const FileRows& rows, int64_t first, int64_t last, std::byte* out) {
  const size_t group_bytes = form(of).group_bytes(rows.n_in);
  for (int64_t row = first * kGroup; row < std::min(last * kGroup, rows.n_out); ++row) {
    form(of).pack_row(rows.data + static_cast<size_t>(row) * rows.row_bytes, rows.n_in, static_cast<int>(row % kGroup),
                      out + static_cast<size_t>(row / kGroup) * group_bytes);
  }
}

void row_to_floats(WeightForm of, const std::byte* row, std::span<float> out) { form(of).to_floats(row, out); }

}  // namespace sluice::kernels

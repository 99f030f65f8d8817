#include "compute/kernels/pack.h"

#include <algorithm>
#include <cstring>

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
void put(const CodesOfRow& codes, int row, Codes5& to) {
  put(codes, row, static_cast<Nibbles&>(to));
  for (int j = 0; j < 4; ++j) {
    int bits = 0;
    for (int step = 0; step < kSteps; ++step) bits |= (codes[4 * step + j] >> 4 & 1) << step;
    to.high[row][j] = static_cast<uint8_t>(bits);
  }
}
void put(const CodesOfRow& codes, int row, Codes6& to) {
  put(codes, row, static_cast<Nibbles&>(to));
  for (int half = 0; half < 2; ++half) {
    for (int j = 0; j < 4; ++j) {
      int bits = 0;
      for (int step = 0; step < 4; ++step) bits |= (codes[16 * half + 4 * step + j] >> 4 & 3) << (2 * step);
      to.high[half][row][j] = static_cast<uint8_t>(bits);
    }
  }
}
void put(const CodesOfRow& codes, int row, Codes8& to) {
  for (int step = 0; step < kSteps; ++step) std::memcpy(to.q[step][row], codes + 4 * step, 4);
}

void read_nibbles(const uint8_t (&q)[16], CodesOfRow& codes) {
  for (int k = 0; k < 16; ++k) {
    codes[k] = q[k] & 15;
    codes[k + 16] = q[k] >> 4;
  }
}
void read_fives(const uint8_t (&q)[16], const uint8_t (&high)[4], CodesOfRow& codes) {
  read_nibbles(q, codes);
  for (int k = 0; k < kBlock; ++k) codes[k] = static_cast<uint8_t>(codes[k] | (high[k / 8] >> (k % 8) & 1) << 4);
}
// Blocks 2 i and 2 i + 1 of a super-block share the bytes i: low nibbles are the even one's.
void read_half_bytes(const uint8_t (&q)[32], bool high, CodesOfRow& codes) {
  for (int k = 0; k < kBlock; ++k) codes[k] = high ? q[k] >> 4 : q[k] & 15;
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

// The codes of a block of 32 whose nibbles the file holds as they are.
template <class File, class P>
void place_nibbles(const File& from, int row, P& to) {
  CodesOfRow codes;
  read_nibbles(from.q, codes);
  put(codes, row, to.codes[0]);
}
template <class File, class P>
void place_fives(const File& from, int row, P& to) {
  CodesOfRow codes;
  read_fives(from.q, from.high, codes);
  put(codes, row, to.codes[0]);
}

void place(const FileQ4_0& from, int row, PackedQ4_0& to) {
  to.scales.d[row] = from.d;
  place_nibbles(from, row, to);
}
void place(const FileQ4_1& from, int row, PackedQ4_1& to) {
  to.scales.d[row] = from.d;
  to.scales.m[row] = from.m;
  place_nibbles(from, row, to);
}
void place(const FileQ5_0& from, int row, PackedQ5_0& to) {
  to.scales.d[row] = from.d;
  place_fives(from, row, to);
}
void place(const FileQ5_1& from, int row, PackedQ5_1& to) {
  to.scales.d[row] = from.d;
  to.scales.m[row] = from.m;
  place_fives(from, row, to);
}
void place(const FileQ8_0& from, int row, PackedQ8_0& to) {
  CodesOfRow codes;
  to.scales.d[row] = from.d;
  std::memcpy(codes, from.q, sizeof codes);
  put(codes, row, to.codes[0]);
}
void place(const FileQ4_K& from, int row, PackedQ4_K& to) {
  put_scales(from, row, to.scales);
  for (int b = 0; b < 8; ++b) {
    CodesOfRow codes;
    read_half_bytes(from.q[b / 2], b % 2 == 1, codes);
    put(codes, row, to.codes[b]);
  }
}
void place(const FileQ5_K& from, int row, PackedQ5_K& to) {
  put_scales(from, row, to.scales);
  for (int b = 0; b < 8; ++b) {
    CodesOfRow codes;
    read_half_bytes(from.q[b / 2], b % 2 == 1, codes);
    for (int k = 0; k < kBlock; ++k) codes[k] = static_cast<uint8_t>(codes[k] | (from.high[k] >> b & 1) << 4);
    put(codes, row, to.codes[b]);
  }
}
void place(const FileQ6_K& from, int row, PackedQ6_K& to) {
  to.scales.d[row] = from.d;
  for (int b = 0; b < 8; ++b) {
    for (int half = 0; half < 2; ++half) to.scales.scale[b][row][half] = from.scales[2 * b + half];
    CodesOfRow codes;
    read_half_bytes(from.low[b / 4][b % 2], b % 4 >= 2, codes);
    for (int k = 0; k < kBlock; ++k) {
      codes[k] = static_cast<uint8_t>(codes[k] | (from.high[b / 4][k] >> (2 * (b % 4)) & 3) << 4);
    }
    put(codes, row, to.codes[b]);
  }
}
void place(const FileIQ4_NL& from, int row, PackedIQ4_NL& to) {
  to.scales.d[row] = from.d;
  place_nibbles(from, row, to);
}
void place(const FileIQ4_XS& from, int row, PackedIQ4_XS& to) {
  to.scales.d[row] = from.d;
  for (int b = 0; b < 8; ++b) {
    const int low = from.scales_low[b / 2] >> (4 * (b % 2)) & 15, high = from.scales_high[b / 4] >> (2 * (b % 4)) & 3;
    to.scales.scale[b][row] = static_cast<int8_t>((low | high << 4) - 32);
    CodesOfRow codes;
    read_nibbles(from.q[b], codes);
    put(codes, row, to.codes[b]);
  }
}
void place(const FileMXFP4& from, int row, PackedMXFP4& to) {
  // 2^(e - 128): the codes are doubled. As bfloat16; the two smallest are subnormal.
  const int e = from.exponent;
  to.scales.d[row] = {static_cast<uint16_t>(e < 2 ? 0x20 << e : (e - 1) << 7)};
  place_nibbles(from, row, to);
}

// --- Whole matrices. ---

template <class File, class P>
struct QuantisedRows {
  static size_t group_bytes(int64_t n_in) { return static_cast<size_t>(n_in / P::kInputs) * sizeof(P); }

  static void pack_row(const std::byte* from, int64_t n_in, int row, std::byte* group) {
    auto* to = reinterpret_cast<P*>(group);
    for (int64_t i = 0; i < n_in / P::kInputs; ++i) {
      File block;
      std::memcpy(&block, from + static_cast<size_t>(i) * sizeof(File), sizeof block);
      place(block, row, to[i]);
    }
  }

  static void to_floats(const std::byte* from, std::span<float> out) {
    for (size_t i = 0; i * P::kInputs < out.size(); ++i) {
      P one{};
      pack_row(from + i * sizeof(File), P::kInputs, 0, reinterpret_cast<std::byte*>(&one));
      for (int at = 0; at < P::kInputs; ++at) {
        const int block = at / kBlock, k = at % kBlock;
        const int code = value_of(one.codes[block], 0, k) - P::kOffset;
        out[i * P::kInputs + static_cast<size_t>(at)] =
            scale_of(one.scales, 0, block, k) * static_cast<float>(code) + min_of(one.scales, 0, block);
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

// Calls fn with the rows type of a form.
template <class Fn>
auto with_rows(WeightForm form, Fn fn) {
  switch (form) {
    case WeightForm::kF32:
      return fn(DenseRows<float, DenseF32>{});
    case WeightForm::kF16:
      return fn(DenseRows<Half, DenseF16>{});
    case WeightForm::kBF16:
      return fn(DenseRows<BFloat16, DenseBF16>{});
    case WeightForm::kQ4_0:
      return fn(QuantisedRows<FileQ4_0, PackedQ4_0>{});
    case WeightForm::kQ4_1:
      return fn(QuantisedRows<FileQ4_1, PackedQ4_1>{});
    case WeightForm::kQ5_0:
      return fn(QuantisedRows<FileQ5_0, PackedQ5_0>{});
    case WeightForm::kQ5_1:
      return fn(QuantisedRows<FileQ5_1, PackedQ5_1>{});
    case WeightForm::kQ8_0:
      return fn(QuantisedRows<FileQ8_0, PackedQ8_0>{});
    case WeightForm::kQ4_K:
      return fn(QuantisedRows<FileQ4_K, PackedQ4_K>{});
    case WeightForm::kQ5_K:
      return fn(QuantisedRows<FileQ5_K, PackedQ5_K>{});
    case WeightForm::kQ6_K:
      return fn(QuantisedRows<FileQ6_K, PackedQ6_K>{});
    case WeightForm::kIQ4_NL:
      return fn(QuantisedRows<FileIQ4_NL, PackedIQ4_NL>{});
    case WeightForm::kIQ4_XS:
      return fn(QuantisedRows<FileIQ4_XS, PackedIQ4_XS>{});
    case WeightForm::kMXFP4:
      break;
  }
  return fn(QuantisedRows<FileMXFP4, PackedMXFP4>{});
}

}  // namespace

std::optional<WeightForm> packed_form(ggml_type type) {
  switch (type) {
    case GGML_TYPE_F32:
      return WeightForm::kF32;
    case GGML_TYPE_F16:
      return WeightForm::kF16;
    case GGML_TYPE_BF16:
      return WeightForm::kBF16;
    case GGML_TYPE_Q4_0:
      return WeightForm::kQ4_0;
    case GGML_TYPE_Q4_1:
      return WeightForm::kQ4_1;
    case GGML_TYPE_Q5_0:
      return WeightForm::kQ5_0;
    case GGML_TYPE_Q5_1:
      return WeightForm::kQ5_1;
    case GGML_TYPE_Q8_0:
      return WeightForm::kQ8_0;
    case GGML_TYPE_Q4_K:
      return WeightForm::kQ4_K;
    case GGML_TYPE_Q5_K:
      return WeightForm::kQ5_K;
    case GGML_TYPE_Q6_K:
      return WeightForm::kQ6_K;
    case GGML_TYPE_IQ4_NL:
      return WeightForm::kIQ4_NL;
    case GGML_TYPE_IQ4_XS:
      return WeightForm::kIQ4_XS;
    case GGML_TYPE_MXFP4:
      return WeightForm::kMXFP4;
    default:
      return std::nullopt;
  }
}

InputForm input_form(WeightForm form) {
  if (form == WeightForm::kBF16) return InputForm::kBFloats;
  return form == WeightForm::kF32 || form == WeightForm::kF16 ? InputForm::kFloats : InputForm::kBlocks;
}

size_t packed_bytes(WeightForm form, int64_t n_in, int64_t n_out) {
  const auto groups = static_cast<size_t>((n_out + kGroup - 1) / kGroup);
  return groups * with_rows(form, [&](auto rows) { return decltype(rows)::group_bytes(n_in); });
}

void pack_groups(WeightForm form, const FileRows& rows, int64_t first, int64_t last, std::byte* out) {
  with_rows(form, [&](auto type) {
    using Rows = decltype(type);
    const size_t group_bytes = Rows::group_bytes(rows.n_in);
    for (int64_t row = first * kGroup; row < std::min(last * kGroup, rows.n_out); ++row) {
      Rows::pack_row(rows.data + static_cast<size_t>(row) * rows.row_bytes, rows.n_in, static_cast<int>(row % kGroup),
                     out + static_cast<size_t>(row / kGroup) * group_bytes);
    }
  });
}

void row_to_floats(WeightForm form, const std::byte* row, std::span<float> out) {
  with_rows(form, [&](auto type) { decltype(type)::to_floats(row, out); });
}

}  // namespace sluice::kernels

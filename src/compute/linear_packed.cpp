// Products with Q4_1 and Q8_0 weights. Eight rows of weights are interleaved, so that a lane of a vector is a row, and
// the integer sum of a block is complete in its lane when it is scaled: the same bits with any instruction set.
//
// A packed block holds 32 inputs of eight rows; a group of eight rows is its blocks, one after another.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compute/linear_kernels.h"
#include "compute/simd.h"

namespace sluice::kernels {
namespace {

constexpr int64_t kBlock = 32;

// As in the file.
struct FileQ4_1 {
  ggml_fp16_t d, m;
  uint8_t q[16];  // low nibbles: inputs 0 … 15, high nibbles: 16 … 31
};
struct FileQ8_0 {
  ggml_fp16_t d;
  int8_t q[32];
};

struct PackedQ4_1 {
  using Value = int8_t;  // of the activations
  ggml_fp16_t d[8], m[8];
  uint8_t q[4][8][4];  // [i][row][j]: low nibble input 4i + j, high nibble 16 + 4i + j
};
struct PackedQ8_0 {
  using Value = int16_t;
  ggml_fp16_t d[8];
  int8_t q[16][8][2];  // [i][row][j]: input 2i + j
};
static_assert(sizeof(PackedQ4_1) == 8 * sizeof(FileQ4_1) && sizeof(PackedQ8_0) == 8 * sizeof(FileQ8_0));

void place(const FileQ4_1& from, int row, PackedQ4_1& to) {
  to.d[row] = from.d;
  to.m[row] = from.m;
  for (int k = 0; k < 16; ++k) to.q[k / 4][row][k % 4] = from.q[k];
}
void place(const FileQ8_0& from, int row, PackedQ8_0& to) {
  to.d[row] = from.d;
  for (int k = 0; k < 32; ++k) to.q[k / 2][row][k % 2] = from.q[k];
}

template <class File, class Packed>
void pack_rows(const Tensor& weight, std::byte* out) {
  const int64_t n_blocks = weight.ne[0] / kBlock;
  auto* packed = reinterpret_cast<Packed*>(out);  // fresh memory: rows beyond the last are zero
  for (int64_t row = 0; row < weight.ne[1]; ++row) {
    const auto* blocks = reinterpret_cast<const File*>(weight.data + static_cast<size_t>(row) * weight.row_bytes);
    Packed* group = packed + row / 8 * n_blocks;
    for (int64_t b = 0; b < n_blocks; ++b) place(blocks[b], static_cast<int>(row % 8), group[b]);
  }
}

#if SLUICE_AVX2

inline __m256i splat_4_bytes(const void* p) {
  int32_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return _mm256_set1_epi32(bits);
}

// sums[c], lane r: the integer product sum of a block of row r and of x[c]; y = fma(d * scale, sum, y) and the offset's
// part.
template <int C>
inline void add_block(const PackedQ4_1& w, const int8_t* const (&x)[C], const BlockScale* const (&scale)[C], int64_t b,
                      F32x8 (&y)[C]) {
  const __m256i low_nibbles = _mm256_set1_epi8(15);
  __m256i sums[C];  // 16 lanes of int16: at most 16 * 15 * 127
  for (int i = 0; i < 4; ++i) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w.q[i]));
    const __m256i low = _mm256_and_si256(both, low_nibbles);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(both, 4), low_nibbles);
    for (int c = 0; c < C; ++c) {
      const __m256i first = _mm256_maddubs_epi16(low, splat_4_bytes(x[c] + b * kBlock + 4 * i));
      const __m256i second = _mm256_maddubs_epi16(high, splat_4_bytes(x[c] + b * kBlock + 16 + 4 * i));
      sums[c] = i == 0 ? first : _mm256_add_epi16(sums[c], first);
      sums[c] = _mm256_add_epi16(sums[c], second);
    }
  }
  const F32x8 d = load8(w.d), m = load8(w.m);
  for (int c = 0; c < C; ++c) {
    const __m256i sum = _mm256_madd_epi16(sums[c], _mm256_set1_epi16(1));
    y[c] = fma8(mul8(d, splat8(scale[c][b].scale)), F32x8{_mm256_cvtepi32_ps(sum)}, y[c]);
    y[c] = fma8(m, splat8(scale[c][b].scaled_sum), y[c]);
  }
}

template <int C>
inline void add_block(const PackedQ8_0& w, const int16_t* const (&x)[C], const BlockScale* const (&scale)[C], int64_t b,
                      F32x8 (&y)[C]) {
  __m256i sums[C];
  for (int c = 0; c < C; ++c) sums[c] = _mm256_setzero_si256();
  for (int i = 0; i < 16; ++i) {
    const __m256i pairs = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w.q[i])));
    for (int c = 0; c < C; ++c) {
      sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(pairs, splat_4_bytes(x[c] + b * kBlock + 2 * i)));
    }
  }
  const F32x8 d = load8(w.d);
  for (int c = 0; c < C; ++c) {
    y[c] = fma8(mul8(d, splat8(scale[c][b].scale)), F32x8{_mm256_cvtepi32_ps(sums[c])}, y[c]);
  }
}

#else

inline int weight(const PackedQ4_1& w, int row, int k) {
  const int both = w.q[k % 16 / 4][row][k % 4];
  return k < 16 ? both & 15 : both >> 4;
}
inline int weight(const PackedQ8_0& w, int row, int k) { return w.q[k / 2][row][k % 2]; }
inline F32x8 offset(const PackedQ4_1& w, float scaled_sum, F32x8 y) { return fma8(load8(w.m), splat8(scaled_sum), y); }
inline F32x8 offset(const PackedQ8_0&, float, F32x8 y) { return y; }

template <class Packed, int C>
inline void add_block(const Packed& w, const typename Packed::Value* const (&x)[C], const BlockScale* const (&scale)[C],
                      int64_t b, F32x8 (&y)[C]) {
  for (int c = 0; c < C; ++c) {
    const F32x8 sums = each_lane([&](int row) {
      int sum = 0;
      for (int k = 0; k < kBlock; ++k) sum += weight(w, row, k) * x[c][b * kBlock + k];
      return static_cast<float>(sum);
    });
    y[c] = fma8(mul8(load8(w.d), splat8(scale[c][b].scale)), sums, y[c]);
    y[c] = offset(w, scale[c][b].scaled_sum, y[c]);
  }
}

#endif

void put(const Product& p, int64_t output, int64_t row, F32x8 value) {
  if (p.bias) value = add8(value, load8(p.bias + output));
  float* y = p.target.y + row * p.target.stride + output;
  if (output + 8 <= p.n_out) {
    store8(y, p.target.add ? add8(load8(y), value) : value);
    return;
  }
  float values[8];
  store8(values, value);
  for (int64_t i = 0; i < p.n_out - output; ++i) y[i] = p.target.add ? y[i] + values[i] : values[i];
}

template <class Packed, int C>
void group_by_rows(const Product& p, const Packed* group, int64_t output, int64_t row) {
  const int64_t n_blocks = p.n_in / kBlock;
  const BlockScale* scale[C];
  const typename Packed::Value* x[C];
  F32x8 y[C];
  for (int c = 0; c < C; ++c) {
    scale[c] = reinterpret_cast<const BlockScale*>(p.x + static_cast<size_t>(row + c) * p.x_bytes);
    x[c] = reinterpret_cast<const typename Packed::Value*>(scale[c] + n_blocks);
    y[c] = zero8();
  }
  for (int64_t b = 0; b < n_blocks; ++b) add_block(group[b], x, scale, b, y);
  for (int c = 0; c < C; ++c) put(p, output, row + c, y[c]);
}

template <class Packed>
void multiply(const Product& p, Part outputs, Part rows) {
  const int64_t n_blocks = p.n_in / kBlock;
  for (int64_t output = outputs.begin; output < outputs.end; output += 8) {
    const Packed* group = reinterpret_cast<const Packed*>(p.weights) + output / 8 * n_blocks;
    int64_t row = rows.begin;
    for (; row + 3 < rows.end; row += 4) group_by_rows<Packed, 4>(p, group, output, row);
    for (; row + 1 < rows.end; row += 2) group_by_rows<Packed, 2>(p, group, output, row);
    if (row < rows.end) group_by_rows<Packed, 1>(p, group, output, row);
  }
}

}  // namespace

bool packs(ggml_type type) { return type == GGML_TYPE_Q4_1 || type == GGML_TYPE_Q8_0; }

size_t packed_bytes(ggml_type type, int64_t n_in, int64_t n_out) {
  const int64_t blocks = (n_out + 7) / 8 * (n_in / kBlock);
  return static_cast<size_t>(blocks) * (type == GGML_TYPE_Q4_1 ? sizeof(PackedQ4_1) : sizeof(PackedQ8_0));
}

void pack(const Tensor& weight, std::byte* out) {
  if (weight.type == GGML_TYPE_Q4_1) {
    pack_rows<FileQ4_1, PackedQ4_1>(weight, out);
  } else {
    pack_rows<FileQ8_0, PackedQ8_0>(weight, out);
  }
}

void multiply_packed(const Product& p, Part outputs, Part rows) {
  if (p.type == GGML_TYPE_Q4_1) {
    multiply<PackedQ4_1>(p, outputs, rows);
  } else {
    multiply<PackedQ8_0>(p, outputs, rows);
  }
}

template <class Value>
void quantise(const float* x, int64_t n, std::byte* out) {
  const int64_t n_blocks = n / kBlock;
  auto* scales = reinterpret_cast<BlockScale*>(out);
  auto* values = reinterpret_cast<Value*>(scales + n_blocks);
  for (int64_t b = 0; b < n_blocks; ++b, x += kBlock, values += kBlock) {
    F32x8 most = abs8(load8(x));
    for (int k = kLanes; k < kBlock; k += kLanes) most = max8(most, abs8(load8(x + k)));
    const float largest = largest8(most);
    const float per_value = largest > 1e-30f ? 127.0f / largest : 0.0f;
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to the nearest integer, ties to even
    int32_t sum = 0;
    for (int k = 0; k < kBlock; ++k) {
      const auto q = static_cast<int32_t>((x[k] * per_value + kRound) - kRound);
      values[k] = static_cast<Value>(q);
      sum += q;
    }
    const float scale = largest / 127.0f;
    scales[b] = {scale, scale * static_cast<float>(sum)};
  }
}
template void quantise<int8_t>(const float*, int64_t, std::byte*);
template void quantise<int16_t>(const float*, int64_t, std::byte*);

}  // namespace sluice::kernels

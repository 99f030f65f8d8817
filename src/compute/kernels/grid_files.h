// The blocks of GGUF files whose codes come from grids: 256 inputs each. An input is unit * factor * scale * value, see
// kernels::Indexed. index(i): with the bit of IQ1's shift as its highest. negative(i): of the i-th eight of inputs.
// nibble(b, half): of a half of block b, whose scale is 2 nibble + 1.
#pragma once

#include <ggml.h>

#include <bit>
#include <cstdint>

#include "compute/kernels/packed.h"
#include "compute/kernels/table.h"

namespace sluice::kernels {

// Seven signs are stored; the eighth makes the number of negative ones even.
constexpr uint8_t with_eighth_sign(unsigned seven) {
  return static_cast<uint8_t>(seven | (std::popcount(seven) % 2 != 0 ? 0x80u : 0u));
}
// Four times seven signs, then four bits of scale; little-endian.
constexpr uint8_t negative_of(const uint8_t* word, int eight) {
  const uint32_t all = word[0] | static_cast<uint32_t>(word[1]) << 8 | static_cast<uint32_t>(word[2]) << 16 |
                       static_cast<uint32_t>(word[3]) << 24;
  return with_eighth_sign(all >> (7 * eight) & 127);
}

struct FactorInFront {
  Half d;
  Half factor() const { return d; }
  void set_factor(Half to) { d = to; }
};

struct FileIQ1_S : FactorInFront {
  using Indexed = IndexedIQ1_S;
  static constexpr ggml_type kType = GGML_TYPE_IQ1_S;
  static constexpr WeightForm kForm = WeightForm::kIQ1_S;
  uint8_t q[32];
  uint8_t high[8][2];  // little-endian: four times three bits of an index, three bits of scale, the shift
  int index(int i) const {
    const int bits = high[i / 4][0] | high[i / 4][1] << 8;
    return q[i] | (bits >> (3 * (i % 4)) & 7) << 8 | bits >> 15 << 11;
  }
  void set_first_index(int to) {
    q[0] = static_cast<uint8_t>(to);
    high[0][0] = to >> 8 & 7;
    high[0][1] = static_cast<uint8_t>(to >> 11 << 7);
  }
  int nibble(int b, int) const { return high[b][1] >> 4 & 7; }
};
struct FileIQ1_M {
  using Indexed = IndexedIQ1_M;
  static constexpr ggml_type kType = GGML_TYPE_IQ1_M;
  static constexpr WeightForm kForm = WeightForm::kIQ1_M;
  uint8_t q[32], high[16];  // nibbles: three bits of an index, the shift
  uint8_t scales[4][2];     // little-endian: four scales of three bits, then four bits of the factor
  Half factor() const {
    int bits = 0;
    for (int i = 0; i < 4; ++i) bits |= scales[i][1] >> 4 << (4 * i);
    return {static_cast<uint16_t>(bits)};
  }
  void set_factor(Half to) {
    for (int i = 0; i < 4; ++i)
      scales[i][1] = static_cast<uint8_t>((scales[i][1] & 15) | (to.bits >> (4 * i) & 15) << 4);
  }
  int index(int i) const { return q[i] | (high[i / 2] >> (4 * (i % 2)) & 15) << 8; }
  void set_first_index(int to) {
    q[0] = static_cast<uint8_t>(to);
    high[0] = to >> 8 & 15;
  }
  int nibble(int b, int half) const {
    const int both = scales[b / 2][0] | scales[b / 2][1] << 8;
    return both >> (6 * (b % 2) + 3 * half) & 7;
  }
};
struct FileIQ2_XXS : FactorInFront {
  using Indexed = IndexedIQ2_XXS;
  static constexpr ggml_type kType = GGML_TYPE_IQ2_XXS;
  static constexpr WeightForm kForm = WeightForm::kIQ2_XXS;
  uint8_t q[8][8];  // of a block: four indices, then signs and scale
  int index(int i) const { return q[i / 4][i % 4]; }
  void set_first_index(int to) { q[0][0] = static_cast<uint8_t>(to); }
  uint8_t negative(int i) const { return negative_of(q[i / 4] + 4, i % 4); }
  int nibble(int b, int) const { return q[b][7] >> 4; }
};
struct FileIQ2_XS : FactorInFront {
  using Indexed = IndexedIQ2_XS;
  static constexpr ggml_type kType = GGML_TYPE_IQ2_XS;
  static constexpr WeightForm kForm = WeightForm::kIQ2_XS;
  uint8_t q[32][2];  // little-endian: nine bits of index, seven signs
  uint8_t scales[8];
  int index(int i) const { return q[i][0] | (q[i][1] & 1) << 8; }
  void set_first_index(int to) {
    q[0][0] = static_cast<uint8_t>(to);
    q[0][1] = to >> 8 & 1;
  }
  uint8_t negative(int i) const { return with_eighth_sign(q[i][1] >> 1); }
  int nibble(int b, int half) const { return scales[b] >> (4 * half) & 15; }
};
struct FileIQ2_S : FactorInFront {
  using Indexed = IndexedIQ2_S;
  static constexpr ggml_type kType = GGML_TYPE_IQ2_S;
  static constexpr WeightForm kForm = WeightForm::kIQ2_S;
  uint8_t q[32], signs[32], high[8];
  uint8_t scales[8];
  int index(int i) const { return q[i] | (high[i / 4] >> (2 * (i % 4)) & 3) << 8; }
  void set_first_index(int to) {
    q[0] = static_cast<uint8_t>(to);
    high[0] = to >> 8 & 3;
  }
  uint8_t negative(int i) const { return signs[i]; }
  int nibble(int b, int half) const { return scales[b] >> (4 * half) & 15; }
};
struct FileIQ3_XXS : FactorInFront {
  using Indexed = IndexedIQ3_XXS;
  static constexpr ggml_type kType = GGML_TYPE_IQ3_XXS;
  static constexpr WeightForm kForm = WeightForm::kIQ3_XXS;
  uint8_t q[64];
  uint8_t signs[8][4];
  int index(int i) const { return q[i]; }
  void set_first_index(int to) { q[0] = static_cast<uint8_t>(to); }
  uint8_t negative(int i) const { return negative_of(signs[i / 4], i % 4); }
  int nibble(int b, int) const { return signs[b][3] >> 4; }
};
struct FileIQ3_S : FactorInFront {
  using Indexed = IndexedIQ3_S;
  static constexpr ggml_type kType = GGML_TYPE_IQ3_S;
  static constexpr WeightForm kForm = WeightForm::kIQ3_S;
  uint8_t q[64], high[8], signs[32];
  uint8_t scales[4];
  int index(int i) const { return q[i] | (high[i / 8] >> (i % 8) & 1) << 8; }
  void set_first_index(int to) {
    q[0] = static_cast<uint8_t>(to);
    high[0] = to >> 8 & 1;
  }
  uint8_t negative(int i) const { return signs[i]; }
  int nibble(int b, int) const { return scales[b / 2] >> (4 * (b % 2)) & 15; }
};
static_assert(sizeof(FileIQ1_S) == 50 && sizeof(FileIQ1_M) == 56 && sizeof(FileIQ2_XXS) == 66);
static_assert(sizeof(FileIQ2_XS) == 74 && sizeof(FileIQ2_S) == 82);
static_assert(sizeof(FileIQ3_XXS) == 98 && sizeof(FileIQ3_S) == 110);

}  // namespace sluice::kernels

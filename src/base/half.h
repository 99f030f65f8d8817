// The 16-bit floating-point types: IEEE binary16 and bfloat16.
#pragma once

#include <bit>
#include <cstdint>

namespace sluice {

struct Half {
  uint16_t bits;
};
inline constexpr float kLargestHalf = 65504.0f;
struct BFloat16 {
  uint16_t bits;
};

// Exact, subnormal numbers and infinities included.
[[gnu::always_inline]] inline float to_f32(Half x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000) << 16, rest = x.bits & 0x7FFFu;
  if (rest >= 0x7C00) return std::bit_cast<float>(sign | 0x7F800000 | (rest & 0x3FF) << 13);
  // Exponents move up by 112: a product with 2^112 also makes subnormal numbers normal.
  const float moved = std::bit_cast<float>(rest << 13) * 0x1p112f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(moved));
}
[[gnu::always_inline]] inline float to_f32(BFloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}
[[gnu::always_inline]] inline float to_f32(float x) { return x; }

// Rounded to nearest, ties to even; NaN stays NaN.
[[gnu::always_inline]] inline Half to_half(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), rest = bits & 0x7FFFFFFF;
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (rest > 0x7F800000) return {static_cast<uint16_t>(sign | 0x7E00)};
  if (rest >= 0x477FF000) return {static_cast<uint16_t>(sign | 0x7C00)};  // 65520 and above round to infinity
  if (rest < 0x38800000) {  // subnormal: adding 1/2 leaves multiples of 2^-24 in the mantissa
    const float sum = std::bit_cast<float>(rest) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) & 0x7FF))};
  }
  const uint32_t even = rest >> 13 & 1;
  return {static_cast<uint16_t>(sign | ((rest - 0x38000000 + 0xFFF + even) >> 13))};
}

[[gnu::always_inline]] inline BFloat16 to_bfloat16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const bool nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  return {static_cast<uint16_t>(nan ? bits >> 16 | 0x40 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}

}  // namespace sluice

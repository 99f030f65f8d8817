// Elementary functions with the same bits on every machine: only additions, products, fused multiply-adds where written
// as such, and integer operations, so that no libm decides a token. Errors are against the correctly rounded value.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace sluice {

// e^x, relative error below 2e-7 for x in [-87, 88]; 0 below, +inf above. Always inline, so that
// loops over arrays vectorise, for whichever instruction set the loop is compiled.
[[gnu::always_inline]] inline float exp_f32(float x) {
  constexpr float kLog2e = 1.44269504088896341f, kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  const float clamped = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
  const float shifted =
      std::fma(clamped, kLog2e, 12582912.0f);  // round to the nearest integer in the low mantissa bits
  const float n = shifted - 12582912.0f;
  float r = std::fma(-n, kLn2High, clamped);
  r = std::fma(-n, kLn2Low, r);
  float p = 1.9875691500e-4f;  // Cephes expf: Moshier
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = std::fma(p, r * r, r + 1.0f);
  const float scale = std::bit_cast<float>((std::bit_cast<int32_t>(shifted) - 0x4B400000 + 127) << 23);
  const float y = p * scale;
  return x < -87.0f ? 0.0f : (x > 88.0f ? INFINITY : y);
}

// Natural logarithm of a positive, finite, normal double; relative error below 1e-14.
double log_f64(double x);

// e^x in double; relative error below 1e-14 for x in [-700, 700], 0 below.
double exp_f64(double x);

// Sine and cosine of an angle in radians, absolute error below 1e-15 for |x| <= 1e9. From 1e18 on, where doubles are
// many turns apart, and of what is no number: those of 0.
struct SinCos {
  double sin, cos;
};
SinCos sin_cos_f64(double x);

}  // namespace sluice

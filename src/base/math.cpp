#include "base/math.h"

namespace sluice {

double log_f64(double x) {
  // x = 2^e m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1), as a series in s^2.
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0), z = s * s;
  double sum = 0.0;
  for (int k = 21; k >= 1; k -= 2) sum = std::fma(sum, z, 1.0 / k);  // z <= 0.0295: the next term is below 1e-17
  return std::fma(static_cast<double>(exponent), 0.69314718055994530942, 2.0 * s * sum);
}

double exp_f64(double x) {
  if (x < -700.0) return 0.0;
  if (x > 700.0) return INFINITY;
  const double n = std::nearbyint(x * 1.4426950408889634074);
  double r = std::fma(-n, 0.693147180369123816490, x);  // fdlibm's split of ln 2
  r = std::fma(-n, 1.90821492927058770002e-10, r);
  double sum = 1.0;
  for (int k = 14; k >= 1; --k) sum = std::fma(sum, r / k, 1.0);
  return sum * std::bit_cast<double>(static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52);
}

SinCos sin_cos_f64(double x) {
  if (!(std::fabs(x) < 1e18)) return {0.0, 1.0};  // NaN too; a quadrant must have a number
  // x = n pi/2 + r with |r| <= pi/4; pi/2 as a sum of two doubles, each product subtracted with one rounding.
  const double n = std::nearbyint(x * 0.63661977236758134308);
  double r = std::fma(-n, 1.57079632679489661923, x);
  r = std::fma(-n, 6.12323399573676603587e-17, r);
  const double z = r * r;
  double s = 1.0, c = 1.0;  // their series, from the last term on; the next ones are below 1e-18
  for (int k = 16; k >= 2; k -= 2) s = std::fma(-s, z / (k * (k + 1)), 1.0);
  for (int k = 15; k >= 1; k -= 2) c = std::fma(-c, z / (k * (k + 1)), 1.0);
  s *= r;
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

}  // namespace sluice

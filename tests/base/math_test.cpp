#include "base/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace sluice {
namespace {

TEST(ExpF32, StaysWithinItsErrorBoundOverItsRange) {
  double worst = 0;
  for (float x = -87.0f; x <= 88.0f; x += 0.00037f) {
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(exp_f32(x) - exact) / exact);
  }
  EXPECT_LT(worst, 2e-7);
}

TEST(ExpF32, IsOneAtZeroAndSaturatesOutsideItsRange) {
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-87.01f), 0.0f);
  EXPECT_EQ(exp_f32(-INFINITY), 0.0f);
  EXPECT_EQ(exp_f32(88.01f), INFINITY);
  EXPECT_EQ(exp_f32(INFINITY), INFINITY);
  EXPECT_GT(exp_f32(-87.0f), 0.0f);
  EXPECT_TRUE(std::isfinite(exp_f32(88.0f)));
}

// Not monotone in the last bit, but never off by more than its error bound allows.
TEST(ExpF32, GrowsUpToItsError) {
  for (float x = -87.0f; x < 88.0f; x += 0.0031f) EXPECT_LE(exp_f32(x), exp_f32(x + 0.0031f) * (1 + 4e-7f)) << x;
}

TEST(ExpF64, StaysWithinItsErrorBoundOverItsRange) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> any(-700, 700);
  for (int i = 0; i < 100000; ++i) {
    const double x = any(random), exact = std::exp(x);
    ASSERT_NEAR(exp_f64(x) / exact, 1.0, 1e-14) << x;
  }
}

TEST(ExpF64, IsOneAtZeroAndSaturatesOutsideItsRange) {
  EXPECT_EQ(exp_f64(0.0), 1.0);
  EXPECT_EQ(exp_f64(-701.0), 0.0);
  EXPECT_EQ(exp_f64(701.0), INFINITY);
}

TEST(LogF64, StaysWithinItsErrorBoundOverAllMagnitudes) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> exponent(-1000, 1000), mantissa(0.5, 2.0);
  for (int i = 0; i < 100000; ++i) {
    const double x = std::ldexp(mantissa(random), static_cast<int>(exponent(random)));
    const double exact = std::log(x);
    ASSERT_NEAR(log_f64(x), exact, 1e-14 * std::abs(exact)) << x;
  }
}

TEST(LogF64, KeepsItsRelativeErrorNextToOne) {
  for (int k = 1; k <= 52; ++k)
    for (const double x : {1 - std::ldexp(1.0, -k), 1 + std::ldexp(1.0, -k)}) {
      const double exact = std::log(x);
      EXPECT_NEAR(log_f64(x), exact, 1e-14 * std::abs(exact)) << x;
    }
  EXPECT_EQ(log_f64(1.0), 0.0);
}

TEST(LogF64, UndoesExp) {
  for (double x = -600; x <= 600; x += 0.73) EXPECT_NEAR(log_f64(exp_f64(x)), x, 1e-13 * std::max(1.0, std::abs(x)));
}

TEST(SinCosF64, AgreesWithLongDoublesFarFromZeroToo) {
  for (double x = -7.0; x < 1e9; x = x < 50.0 ? x + 0.0137 : x * 1.00371) {
    const SinCos found = sin_cos_f64(x);
    ASSERT_NEAR(found.sin, static_cast<double>(std::sin(static_cast<long double>(x))), 1e-15) << x;
    ASSERT_NEAR(found.cos, static_cast<double>(std::cos(static_cast<long double>(x))), 1e-15) << x;
  }
  EXPECT_EQ(sin_cos_f64(0.0).sin, 0.0);
  EXPECT_EQ(sin_cos_f64(0.0).cos, 1.0);
}

// More turns than an integer counts: no double tells such angles apart, but what comes out is the same everywhere.
TEST(SinCosF64, OfAngleBeyondAllMeaningIsThatOfZero) {
  for (const double x : {1e19, 1e300, std::numeric_limits<double>::max(), std::numeric_limits<double>::infinity(),
                         std::numeric_limits<double>::quiet_NaN()})
    for (const double angle : {x, -x}) {
      EXPECT_EQ(sin_cos_f64(angle).sin, 0.0) << angle;
      EXPECT_EQ(sin_cos_f64(angle).cos, 1.0) << angle;
    }
  EXPECT_NE(sin_cos_f64(1e15).sin, 0.0) << "as far as a model's positions go";
}

}  // namespace
}  // namespace sluice

#include "compute/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "compute/decoding.h"

namespace sluice::test {
namespace {

TEST(RmsNorm, AgreesWithDoublePrecision) {
  for (const size_t n : {1u, 7u, 8u, 64u, 577u}) {
    const std::vector<float> x = Dice(n).normals(n), weight = Dice(n + 1).normals(n);
    double squares = 0.0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    std::vector<float> out(n);
    rms_norm(x, weight, 1e-5f, out);
    for (size_t i = 0; i < n; ++i) {
      EXPECT_NEAR(out[i], x[i] * weight[i] / std::sqrt(squares / static_cast<double>(n) + 1e-5), 1e-5);
    }
  }
}

TEST(SiluTimes, AgreesWithDoublePrecisionAlsoFarFromZero) {
  std::vector<float> gate = {0, 1, -1, 20, -20, 90, -90, 1000, -1000, 0.5f};
  const std::vector<float> before = gate, up = Dice(1).normals(gate.size());
  silu_times(gate, up);
  for (size_t i = 0; i < gate.size(); ++i) {
    EXPECT_NEAR(gate[i], before[i] / (1.0 + std::exp(-static_cast<double>(before[i]))) * up[i],
                1e-6 * std::fabs(before[i]) + 1e-6);
  }
}

TEST(Softmax, AgreesWithDoublePrecision) {
  for (const size_t n : {1u, 5u, 8u, 29u, 1000u}) {
    std::vector<float> x = Dice(n).normals(n);
    double sum = 0.0;
    for (const float v : x) sum += std::exp(static_cast<double>(v));
    const std::vector<float> before = x;
    softmax(x);
    for (size_t i = 0; i < n; ++i) EXPECT_NEAR(x[i], std::exp(static_cast<double>(before[i])) / sum, 1e-6);
  }
}

TEST(Rope, TurnsPairsByPositionTimesFrequency) {
  for (const auto pairing : {RopeParameters::Pairing::kAdjacent, RopeParameters::Pairing::kHalves}) {
    RopeParameters p;
    p.pairing = pairing;
    p.n_dims = 8;
    const Rope rope(p, {});
    std::vector<float> angles(static_cast<size_t>(rope.size()));
    rope.angles(5, angles);
    const std::vector<float> before = Dice(1).normals(8);
    std::vector<float> head = before;
    rope.turn(angles, head.data());
    for (size_t i = 0; i < 4; ++i) {
      const bool adjacent = pairing == RopeParameters::Pairing::kAdjacent;
      const size_t a = adjacent ? 2 * i : i, b = adjacent ? 2 * i + 1 : i + 4;
      const double angle = 5 * std::pow(10000.0, -2.0 * static_cast<double>(i) / 8);
      EXPECT_NEAR(head[a], before[a] * std::cos(angle) - before[b] * std::sin(angle), 1e-6);
      EXPECT_NEAR(head[b], before[a] * std::sin(angle) + before[b] * std::cos(angle), 1e-6);
    }
  }
}

}  // namespace
}  // namespace sluice::test

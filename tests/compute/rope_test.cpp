#include "compute/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "compute/decoding.h"

namespace sluice::test {
namespace {

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

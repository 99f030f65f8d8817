#include "base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace sluice {
namespace {

using Counter = std::array<uint32_t, 4>;

// The known answers that Random123 publishes for philox4x32 with ten rounds.
TEST(Philox, GivesThePublishedAnswerForZeros) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(Philox, GivesThePublishedAnswerForOnes) {
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, GivesThePublishedAnswerForTheDigitsOfPi) {
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, IsTheWordOfTheTokenAtTheSite) {
  const DrawSite site{0x299f31d0a4093822ull, 0x13198a2e, 0x85a308d3, static_cast<Purpose>(0x03707344)};
  const uint32_t first = 4u * 0x043f6a88u;  // of the block with counter word 0x043f6a88
  const Counter words = philox4x32({0x043f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(uniform(site, first + i), (words[i] + 0.5) / 4294967296.0);
}

TEST(Uniform, OfABlockIsThatOfItsTokens) {
  const DrawSite site{42, 1, 17, Purpose::kTest};
  for (uint32_t block = 0; block < 100; ++block)
    for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(uniform4(site, block)[i], uniform(site, 4 * block + i));
}

TEST(Uniform, HasTheMomentsOfTheUniformDistribution) {
  constexpr int kDraws = 200000;
  double sum = 0, squares = 0, neighbours = 0, before = 0.5;
  for (uint32_t token = 0; token < kDraws; ++token) {
    const double u = uniform({7, 0, 3, Purpose::kTest}, token);
    ASSERT_GT(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
    neighbours += (u - 0.5) * (before - 0.5);
    before = u;
  }
  // Within four standard deviations of the estimates.
  EXPECT_NEAR(sum / kDraws, 1.0 / 2, 4 * std::sqrt(1.0 / 12 / kDraws));
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, 4 * std::sqrt(4.0 / 45 / kDraws));
  EXPECT_NEAR(neighbours / kDraws, 0.0, 4 / 12.0 / std::sqrt(kDraws));
}

TEST(Uniform, ChangesWithEveryPartOfTheSite) {
  const DrawSite site{1, 2, 3, Purpose::kSample};
  std::set<double> values{uniform(site, 9)};
  values.insert(uniform({1 + (1ull << 32), 2, 3, Purpose::kSample}, 9));
  values.insert(uniform({2, 2, 3, Purpose::kSample}, 9));
  values.insert(uniform({1, 3, 3, Purpose::kSample}, 9));
  values.insert(uniform({1, 2, 4, Purpose::kSample}, 9));
  values.insert(uniform({1, 2, 3, Purpose::kDraft}, 9));
  values.insert(uniform(site, 10));
  EXPECT_EQ(values.size(), 7u);
}

TEST(Gumbel, HasTheMomentsOfTheGumbelDistribution) {
  constexpr int kDraws = 200000;
  constexpr double kEuler = 0.57721566490153286, kVariance = 1.6449340668482264;  // pi^2 / 6
  double sum = 0, squares = 0;
  for (uint32_t token = 0; token < kDraws; ++token) {
    const double g = gumbel({11, 0, 5, Purpose::kTest}, token);
    ASSERT_GT(g, -3.2);
    ASSERT_LT(g, 22.9);
    sum += g;
    squares += (g - kEuler) * (g - kEuler);
  }
  EXPECT_NEAR(sum / kDraws, kEuler, 4 * std::sqrt(kVariance / kDraws));
  EXPECT_NEAR(squares / kDraws, kVariance, 4 * kVariance * std::sqrt(4.4 / kDraws));  // kurtosis 5.4
}

TEST(Gumbel, IsMinusLogMinusLogOfTheUniform) {
  for (uint32_t token = 0; token < 1000; ++token) {
    const DrawSite site{5, 0, 1, Purpose::kTest};
    const double expected = -std::log(-std::log(uniform(site, token)));
    EXPECT_NEAR(gumbel(site, token), expected, 1e-13 * std::max(1.0, std::abs(expected)));
  }
}

TEST(Gumbel, StaysWithinItsRangeAtTheSmallestAndLargestUniform) {
  EXPECT_GT(-std::log(-std::log(0x1p-33)), -3.2);
  EXPECT_LT(-std::log(-std::log1p(-0x1p-33)), 22.9);
}

TEST(Random, APathGivesOtherNoiseAndNoneTheSame) {
  const DrawSite site{.seed = 3, .choice = 1, .position = 7, .purpose = Purpose::kDraft};
  DrawSite none = site, one = site, other = site;
  none.path = 0;
  one.path = prolong(prolong(0, 5), 6);
  other.path = prolong(prolong(0, 6), 5);
  EXPECT_EQ(uniform(site, 2), uniform(none, 2));
  EXPECT_NE(uniform(site, 2), uniform(one, 2));
  EXPECT_NE(uniform(one, 2), uniform(other, 2));
}

}  // namespace
}  // namespace sluice

#include "source/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace sluice {
namespace {

std::vector<Candidate> random_candidates(std::mt19937& random, size_t n) {
  std::vector<Token> tokens(30);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(i);
  std::shuffle(tokens.begin(), tokens.end(), random);
  std::vector<Candidate> candidates;
  float left = 1.0f;
  for (size_t i = 0; i < n; ++i) {
    const float p = left * static_cast<float>(random() % 1000) / 1000.0f;
    candidates.push_back({tokens[i], p});
    left -= p;
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.probability > b.probability; });
  return candidates;
}

TEST(Fuse, MixesTheProbabilitiesOfBothByTheirWeights) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const auto model = random_candidates(random, random() % 16), text = random_candidates(random, random() % 16);
    const float weight = static_cast<float>(random() % 11) / 10.0f;
    std::map<Token, float> expected;
    for (const Candidate& c : model) expected[c.token] += (1.0f - weight) * c.probability;
    for (const Candidate& c : text) expected[c.token] += weight * c.probability;
    const auto fused = fuse(model, text, weight);
    ASSERT_EQ(fused.size(), expected.size()) << "each token once";
    float sum = 0.0f;
    for (size_t i = 0; i < fused.size(); ++i) {
      ASSERT_NEAR(fused[i].probability, expected.at(fused[i].token), 1e-6);
      sum += fused[i].probability;
      if (i > 0) {
        ASSERT_LE(fused[i].probability, fused[i - 1].probability) << "the likeliest first";
      }
    }
    EXPECT_LE(sum, 1.0f + 1e-5f);
  }
}

TEST(Fuse, NeverMakesAProbabilityLargerThanOne) {
  for (int weight = 0; weight <= 1000; ++weight)
    EXPECT_LE(fuse({{1, 1.0f}}, {{1, 1.0f}}, static_cast<float>(weight) / 1000.0f)[0].probability, 1.0f) << weight;
}

TEST(Fuse, ASilentSourceLeavesTheOther) {
  EXPECT_TRUE(fuse({}, {}).empty());
  EXPECT_EQ(fuse({{3, 0.5f}}, {}).at(0).token, 3);
  EXPECT_EQ(fuse({}, {{3, 0.5f}}).at(0).token, 3);
}

TEST(Fuse, AmongEqualsTheModelsWordCounts) {
  const auto fused = fuse({{1, 0.5f}}, {{2, 0.5f}}, 0.5f);
  EXPECT_EQ(fused.at(0).token, 1);
}

}  // namespace
}  // namespace sluice

#include "verify/lossy.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

const TargetDistribution kTarget = {{{7, 0.5}, {3, 0.3}, {9, 0.15}, {4, 0.05}}};

std::optional<Token> choose(Rule rule, std::vector<Candidate> children, float accept_p = 0.75f) {
  return choose_child(kTarget, {.q = std::move(children)}, {.rule = rule, .accept_p = accept_p});
}

TEST(Lossy, RelaxedTakesTheChildThatTheTargetHoldsLikeliest) {
  EXPECT_EQ(choose(Rule::kRelaxed, {{4, 0.9f}, {9, 0.05f}}), 9);
  EXPECT_EQ(choose(Rule::kRelaxed, {{4, 0.9f}}), 4);
  EXPECT_EQ(choose(Rule::kRelaxed, {{4, 0.9f}, {7, 0.01f}, {3, 0.05f}}), 7);
  EXPECT_EQ(choose(Rule::kRelaxed, {}), std::nullopt);
  EXPECT_EQ(choose(Rule::kRelaxed, {{5, 0.9f}}), std::nullopt);  // what the target can't say
}

TEST(Lossy, TopPTakesTheChildLikeliestByItsSourceAmongTheTargetsLikeliest) {
  EXPECT_EQ(choose(Rule::kTopP, {{7, 0.2f}, {3, 0.6f}, {9, 0.9f}}), 3);  // 0.5 + 0.3 reach 0.75
  EXPECT_EQ(choose(Rule::kTopP, {{7, 0.2f}, {3, 0.6f}, {9, 0.9f}}, 0.81f), 9);
  EXPECT_EQ(choose(Rule::kTopP, {{9, 0.9f}, {4, 0.1f}}), std::nullopt);
  EXPECT_EQ(choose(Rule::kTopP, {{7, 0.5f}, {3, 0.5f}}), 7);  // equals: the target's order
}

TEST(Lossy, GreedyDecodingTakesThePlainSoftmax) {
  const SamplingParams greedy = distribution_of({.top_k = 1, .top_p = 0.1f});
  EXPECT_EQ(greedy.temperature, 1.0f);
  EXPECT_EQ(greedy.top_k, 0);
  EXPECT_EQ(greedy.top_p, 1.0f);
  const SamplingParams sampled{.temperature = 0.7f, .top_k = 5};
  EXPECT_EQ(distribution_of(sampled), sampled);
}

}  // namespace
}  // namespace sluice

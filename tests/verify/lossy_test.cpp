#include "verify/lossy.h"

#include <gtest/gtest.h>

#include <limits>

#include "verify/sampler.h"

namespace sluice {
namespace {

// Tokens 3, 4, 7 and 9 have 0.3, 0.05, 0.5 and 0.15 of the mass.
const std::vector<float> kWeights = {0, 0, 0, 0.6f, 0.1f, 0, 0, 1.0f, 0, 0.3f};

std::optional<Token> choose(Rule rule, std::vector<Candidate> children, float accept_p = 0.75f) {
  return choose_child(kWeights, {.q = std::move(children)}, {.rule = rule, .accept_p = accept_p});
}

TEST(Lossy, RelaxedTakesTheChildThatTheTargetHoldsLikeliest) {
  EXPECT_EQ(choose(Rule::kRelaxed, {{4, 0.9f}, {9, 0.05f}}), 9);
  EXPECT_EQ(choose(Rule::kRelaxed, {{4, 0.9f}}), 4);
  EXPECT_EQ(choose(Rule::kRelaxed, {{4, 0.9f}, {7, 0.01f}, {3, 0.05f}}), 7);
  EXPECT_EQ(choose(Rule::kRelaxed, {{5, 0.9f}, {2, 0.1f}}), 2);  // equals: the lower id
  EXPECT_EQ(choose(Rule::kRelaxed, {}), std::nullopt);
}

TEST(Lossy, TopPTakesTheChildLikeliestByItsSourceAmongTheTargetsLikeliest) {
  EXPECT_EQ(choose(Rule::kTopP, {{7, 0.2f}, {3, 0.6f}, {9, 0.9f}}), 3);  // 0.5 + 0.3 reach 0.75
  EXPECT_EQ(choose(Rule::kTopP, {{7, 0.2f}, {3, 0.6f}, {9, 0.9f}}, 0.85f), 9);
  EXPECT_EQ(choose(Rule::kTopP, {{9, 0.9f}, {4, 0.1f}}), std::nullopt);
  EXPECT_EQ(choose(Rule::kTopP, {{3, 0.5f}, {7, 0.5f}}), 7);  // equals: the target's order
  EXPECT_EQ(choose(Rule::kTopP, {{4, 0.5f}}, 1.0f), 4);
}

TEST(Lossy, WeightsAreThoseOfTheDistributionWithoutItsFilters) {
  Sampler sampler;
  const std::vector<float> logits = {0.5f, 2.0f, -1.0f, 1.0f};
  for (const float temperature : {0.0f, 0.5f, 1.0f}) {
    const SamplingParams filtered{.temperature = temperature, .top_k = 1, .repeat_penalty = 1.5f};
    const auto found = sampler.weights(filtered, logits, std::vector<Token>{1});
    const std::vector<float> weights(found.begin(), found.end());
    SamplingParams plain = filtered;
    plain.temperature = temperature > 0 ? temperature : 1.0f;
    plain.top_k = 0;
    double sum = 0;
    for (const float w : weights) sum += w;
    const auto p = sampler.probabilities(plain, logits, std::vector<Token>{1});
    for (size_t token = 0; token < p.size(); ++token) EXPECT_NEAR(weights[token] / sum, p[token], 1e-6) << temperature;
  }
  const float nothing = -std::numeric_limits<float>::infinity();
  for (const float w : sampler.weights({}, std::vector<float>{nothing, nothing}, {})) EXPECT_EQ(w, 0.0f);
}

}  // namespace
}  // namespace sluice

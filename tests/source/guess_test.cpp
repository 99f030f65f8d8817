#include "source/guess.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "verify/sampler.h"

namespace sluice {
namespace {

std::vector<float> random_logits(uint32_t seed, size_t n, float spread = 3.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> logits(n);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// exp(logit) over the sum of all, in double, and the tokens by it.
std::vector<std::pair<double, Token>> softmax(const std::vector<float>& logits) {
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  std::vector<std::pair<double, Token>> all;
  for (size_t i = 0; i < logits.size(); ++i)
    all.emplace_back(std::exp(static_cast<double>(logits[i])) / sum, static_cast<Token>(i));
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  return all;
}

TEST(TopLogits, AreTheLargestOnes) {
  for (const size_t n : {1u, 5u, 64u, 65u, 1000u}) {
    const auto logits = random_logits(static_cast<uint32_t>(n), n);
    const TopLogits top = top_logits(logits, static_cast<int32_t>(n));
    const auto all = softmax(logits);
    ASSERT_EQ(top.entries.size(), std::min(n, TopLogits::kKept));
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    EXPECT_NEAR(top.log_sum, std::log(sum), 1e-5);
    for (size_t i = 0; i < top.entries.size(); ++i) EXPECT_EQ(top.entries[i].token, all[i].second) << i;
  }
}

TEST(TopLogits, EqualOnesGoByTheirIds) {
  const std::vector<float> logits(200, 1.5f);
  const TopLogits top = top_logits(logits, 200);
  for (size_t i = 0; i < top.entries.size(); ++i) EXPECT_EQ(top.entries[i].token, static_cast<Token>(i));
}

TEST(TopLogits, TokensThatTheTargetDoesNotHaveAreNeverGuessed) {
  std::vector<float> logits = random_logits(3, 100);
  logits[99] = 50.0f;
  const TopLogits top = top_logits(logits, 90);
  for (const auto& entry : top.entries) EXPECT_LT(entry.token, 90);
  double sum = 0.0;
  for (size_t i = 0; i < 90; ++i) sum += std::exp(static_cast<double>(logits[i]));
  EXPECT_NEAR(top.log_sum, std::log(sum), 1e-5);
  EXPECT_EQ(top_logits(logits, 1000).entries.front().token, 99);  // a smaller vocabulary than the target's
}

TEST(Guess, GreedyGivesTheSoftmaxInItsOrder) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const auto logits = random_logits(seed, 300);
    const auto all = softmax(logits);
    const auto candidates = guess(top_logits(logits, 300), {}, 17, 16);
    ASSERT_EQ(candidates.size(), 16u);
    for (size_t i = 0; i < candidates.size(); ++i) {
      EXPECT_EQ(candidates[i].token, all[i].second);
      EXPECT_NEAR(candidates[i].probability, all[i].first, 1e-5 * all[i].first + 1e-7);
    }
  }
}

TEST(Guess, GivesNoMoreThanThereAreOrAreAskedFor) {
  EXPECT_EQ(guess(top_logits(random_logits(1, 5), 5), {}, 0, 16).size(), 5u);
  EXPECT_EQ(guess(top_logits(random_logits(1, 500), 500), {}, 0, 500).size(), TopLogits::kKept);
  EXPECT_EQ(guess(top_logits(random_logits(1, 5), 5), {}, 0, 0).size(), 0u);
}

struct Filters {
  const char* name;
  SamplingParams sampling;
};

class SameModel : public ::testing::TestWithParam<Filters> {};

// Draft and target are the same model: the first guess is the very token that the target draws, at every position.
TEST_P(SameModel, GuessesTheTargetsOwnDrawFirst) {
  Sampler sampler;
  for (uint32_t seed = 0; seed < 40; ++seed)
    for (const float spread : {0.3f, 3.0f}) {  // unsure and sure
      const auto logits = random_logits(seed, 60, spread);
      const TopLogits top = top_logits(logits, 60);
      for (int32_t position = 0; position < 50; ++position) {
        SamplingParams sampling = GetParam().sampling;
        sampling.seed = seed;
        const auto candidates = guess(top, sampling, position, 8);
        ASSERT_EQ(candidates.size(), 8u);
        ASSERT_EQ(candidates[0].token, sampler.draw(sampling, logits, {}, position).token)
            << "seed " << seed << ", spread " << spread << ", position " << position;
        for (size_t i = 1; i < candidates.size(); ++i)
          ASSERT_LE(candidates[i].probability, candidates[i - 1].probability);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Sampling, SameModel,
    ::testing::Values(Filters{"Greedy", {}}, Filters{"Temperature", {.temperature = 1.0f}},
                      Filters{"Cold", {.temperature = 0.1f}}, Filters{"Hot", {.temperature = 3.0f}},
                      Filters{"TopK", {.temperature = 1.0f, .top_k = 3}},
                      Filters{"TopOne", {.temperature = 1.5f, .top_k = 1}},
                      Filters{"TopP", {.temperature = 1.0f, .top_p = 0.5f}},
                      Filters{"MinP", {.temperature = 1.0f, .min_p = 0.3f}},
                      Filters{"All", {.temperature = 1.3f, .top_k = 20, .top_p = 0.8f, .min_p = 0.1f}},
                      Filters{"AnotherChoice", {.temperature = 1.0f, .top_k = 5, .choice = 3}}),
    [](const auto& filters) { return filters.param.name; });

TEST(Guess, AVocabularyLargerThanWhatIsKeptIsGuessedWellNonetheless) {
  Sampler sampler;
  int32_t hits = 0, tries = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const auto logits = random_logits(seed, 5000, 3.0f);
    const TopLogits top = top_logits(logits, 5000);
    for (int32_t position = 0; position < 20; ++position, ++tries) {
      const SamplingParams sampling{.temperature = 0.8f, .seed = seed};
      hits += guess(top, sampling, position, 1)[0].token == sampler.draw(sampling, logits, {}, position).token;
    }
  }
  EXPECT_GT(hits, tries * 6 / 10);  // the rest lies in the tail
}

TEST(Guess, IsTheGreedyOneAsTheTemperatureGoesToZero) {
  const auto logits = random_logits(8, 50);
  const TopLogits top = top_logits(logits, 50);
  const auto cold = guess(top, {.temperature = 1e-5f}, 3, 8), greedy = guess(top, {}, 3, 8);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(cold[i].token, greedy[i].token);
    EXPECT_NEAR(cold[i].probability, greedy[i].probability, 1e-3);
  }
}

TEST(Guess, SurvivesLogitsThatAreNoNumbers) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  Sampler sampler;
  for (const float odd : {kNan, kInfinity, -kInfinity})
    for (const size_t how_many : {1u, 2u, 40u})
      for (const float temperature : {0.0f, 1.0f, 1e-40f, 100.0f}) {
        auto logits = random_logits(5, 40);
        for (size_t i = 0; i < how_many; ++i) logits[(7 + 3 * i) % 40] = odd;
        const SamplingParams sampling{.temperature = temperature, .top_k = 9, .top_p = 0.9f, .min_p = 0.01f};
        const auto candidates = guess(top_logits(logits, 40), sampling, 2, 16);
        for (size_t i = 0; i < candidates.size(); ++i) {
          EXPECT_GE(candidates[i].token, 0);
          EXPECT_LT(candidates[i].token, 40);
          EXPECT_GE(candidates[i].probability, 0.0f);  // so it is a number
          EXPECT_LE(candidates[i].probability, 1.0f);
          if (i > 0) {
            EXPECT_LE(candidates[i].probability, candidates[i - 1].probability);
          }
          EXPECT_FALSE(std::isnan(logits[static_cast<size_t>(candidates[i].token)]));
        }
        if (how_many == 40 && odd != kInfinity) {
          EXPECT_TRUE(candidates.empty());
        }
        if (how_many == 1 && temperature == 0.0f) {
          EXPECT_EQ(candidates.at(0).token, sampler.draw(sampling, logits, {}, 2).token);
          EXPECT_GT(candidates.at(0).probability, 0.01f) << "one odd logit makes no guess worthless";
        }
      }
}

}  // namespace
}  // namespace sluice

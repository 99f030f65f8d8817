#include "verify/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <thread>

#include "base/random.h"
#include "support/distribution.h"

namespace sluice {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_logits(size_t n, uint32_t seed, float spread = 3.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> logits(n);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

std::vector<double> adjusted(const SamplingParams& params, std::span<const float> logits,
                             const std::vector<Token>& history) {
  std::vector<double> result(logits.begin(), logits.end());
  for (const Token token : std::set<Token>(history.begin(), history.end()))
    result[token] = result[token] > 0 ? result[token] / params.repeat_penalty : result[token] * params.repeat_penalty;
  std::map<Token, int> said;
  for (size_t i = static_cast<size_t>(params.answer_from); i < history.size(); ++i) ++said[history[i]];
  for (const auto& [token, n] : said) result[token] -= params.presence_penalty + n * params.frequency_penalty;
  for (const auto& [token, bias] : params.logit_bias) result[token] += bias;
  return result;
}

// The parameters word by word, in double over a sorted copy of the vocabulary: token -> probability of the survivors.
std::map<Token, double> reference(const SamplingParams& params, std::span<const float> logits,
                                  const std::vector<Token>& history) {
  const std::vector<double> scores = adjusted(params, logits, history);
  std::vector<Token> ids(scores.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](Token a, Token b) { return scores[a] > scores[b]; });
  std::vector<double> p;
  for (const Token id : ids) p.push_back(std::exp((scores[id] - scores[ids[0]]) / params.temperature));
  const auto keep = [&](size_t count) {
    p.resize(count);
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= sum;
  };
  keep(params.top_k > 0 ? std::min<size_t>(params.top_k, p.size()) : p.size());
  size_t count = p.size();
  if (params.top_p < 1) {
    count = 0;
    for (double mass = 0; count < p.size() && mass < params.top_p; ++count) mass += p[count];
  }
  keep(count);
  count = 1;
  while (count < p.size() && p[count] >= params.min_p * p[0]) ++count;
  keep(count);
  std::map<Token, double> result;
  for (size_t i = 0; i < p.size(); ++i) result[ids[i]] = p[i];
  return result;
}

void expect_reference(const SamplingParams& params, std::span<const float> logits, const std::vector<Token>& history) {
  const auto expected = reference(params, logits, history);
  Sampler sampler;
  const auto actual = test::distribution(sampler, params, logits, history);
  double before = 2.0;
  std::set<Token> tokens;
  for (const auto& [token, probability] : actual) {
    EXPECT_LE(probability, before);
    before = probability;
    tokens.insert(token);
    ASSERT_TRUE(expected.count(token)) << token;
    EXPECT_NEAR(probability, expected.at(token), 1e-5 * expected.at(token) + 1e-12);
  }
  EXPECT_EQ(tokens.size(), actual.size());
  for (const auto& [token, probability] : expected)
    EXPECT_TRUE(probability < 1e-30 || tokens.count(token)) << token << " of probability " << probability;
}

TEST(Sampler, FiltersAsTheReferenceDoes) {
  uint32_t seed = 0;
  for (const size_t n : {7u, 64u, 1000u, 5003u})
    for (const int32_t top_k : {0, 1, 40, 700})
      for (const float top_p : {1.0f, 0.3f, 0.9f, 0.999f})
        for (const float min_p : {0.0f, 0.05f, 0.5f})
          for (const float temperature : {0.3f, 1.0f, 2.0f}) {
            const SamplingParams params{.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p};
            SCOPED_TRACE(testing::Message() << n << " " << top_k << " " << top_p << " " << min_p << " " << temperature);
            expect_reference(params, random_logits(n, ++seed), {});
          }
}

TEST(Sampler, PenalisesEachDistinctTokenOfTheHistoryOnceAndAddsTheBias) {
  const std::vector<float> logits = random_logits(500, 3);
  const std::vector<Token> history{4, 9, 4, 4, 100, 9, 321};
  for (const float penalty : {0.5f, 1.3f, 3.0f})
    expect_reference({.temperature = 0.8f,
                      .top_k = 60,
                      .top_p = 0.95f,
                      .min_p = 0.01f,
                      .repeat_penalty = penalty,
                      .logit_bias = {{9, 2.5f}, {17, 8.0f}, {3, -100.0f}}},
                     logits, history);
}

TEST(Sampler, PenalisesTokensOfTheAnswerOnceAndAsOftenAsItHoldsThem) {
  const std::vector<float> logits = random_logits(500, 3);
  const std::vector<Token> history{4, 9, 4, 4, 100, 9, 321, 9, 9, 100};
  for (const int32_t answer_from : {0, 3, 9, 10, 50})
    for (const float presence : {0.0f, 1.5f, -2.0f})
      for (const float frequency : {0.0f, 0.7f, -0.25f}) {
        SCOPED_TRACE(testing::Message() << answer_from << " " << presence << " " << frequency);
        expect_reference({.temperature = 0.8f,
                          .repeat_penalty = 1.2f,
                          .presence_penalty = presence,
                          .frequency_penalty = frequency,
                          .answer_from = answer_from,
                          .logit_bias = {{9, 2.5f}}},
                         logits, history);
      }
}

TEST(Sampler, PenaltiesOfAnAnswerDependOnItsTokensAndNotOnTheirOrder) {
  const std::vector<float> logits = random_logits(300, 8);
  const SamplingParams params{
      .temperature = 1.0f, .presence_penalty = 0.3f, .frequency_penalty = 0.1f, .answer_from = 2, .seed = 3};
  Sampler sampler;
  const Draw draw = sampler.draw(params, logits, std::vector<Token>{1, 2, 7, 5, 7, 250}, 6);
  const Draw other = sampler.draw(params, logits, std::vector<Token>{8, 9, 250, 7, 7, 5}, 6);
  EXPECT_EQ(draw.token, other.token);
  EXPECT_EQ(draw.logprob, other.logprob);
}

TEST(Sampler, PenaltyComesBeforeBiasAndBothBeforeGreedy) {
  Sampler sampler;
  const std::vector<float> logits{4.0f, 3.0f, -1.0f};
  EXPECT_EQ(sampler.draw({}, logits, {}, 0).token, 0);
  const std::vector<Token> history{0, 0};
  EXPECT_EQ(sampler.draw({.repeat_penalty = 2.0f}, logits, history, 0).token, 1);
  EXPECT_EQ(sampler.draw({.repeat_penalty = 1.2f}, logits, history, 0).token, 0);  // once, not twice
  // 4 / 2 + 1.5 > 3, but (4 + 1.5) / 2 < 3.
  EXPECT_EQ(sampler.draw({.repeat_penalty = 2.0f, .logit_bias = {{0, 1.5f}}}, logits, history, 0).token, 0);
  EXPECT_EQ(sampler.draw({.logit_bias = {{2, 5.5f}}}, logits, {}, 0).token, 2);
}

// A sorted copy of the vocabulary, in double.
TEST(Sampler, NamesTheLikeliestTokensBeforeAllParameters) {
  std::vector<float> logits = random_logits(3000, 12);
  logits[7] = logits[2000] = logits[1999] = 11.5f;  // the likeliest, or among them
  logits[8] = kNaN;
  double sum = 0;
  for (const float logit : logits) sum += std::isnan(logit) ? 0 : std::exp(static_cast<double>(logit));
  std::vector<Token> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::erase(ids, 8);
  std::stable_sort(ids.begin(), ids.end(), [&](Token a, Token b) { return logits[a] > logits[b]; });
  Sampler sampler;
  const SamplingParams params{
      .temperature = 1.7f, .top_k = 2, .repeat_penalty = 3.0f, .frequency_penalty = 1.0f, .logit_bias = {{9, 50.0f}}};
  const Draw draw = sampler.draw(params, logits, std::vector<Token>{7, 7}, 2);
  for (const int32_t n : {0, 1, 2, 5, 20}) {
    const auto top = sampler.top_logprobs(logits, n);
    ASSERT_EQ(top.size(), static_cast<size_t>(n));
    for (size_t i = 0; i < top.size(); ++i) {
      EXPECT_EQ(top[i].token, ids[i]);
      EXPECT_NEAR(top[i].logprob, logits[ids[i]] - std::log(sum), 1e-4);
      EXPECT_EQ(top[i].logprob, sampler.logprob(logits, top[i].token));
      EXPECT_TRUE(top[i].token != draw.token || top[i].logprob == draw.logprob);
    }
  }
  EXPECT_EQ(sampler.top_logprobs(std::vector<float>{1.0f, -kInfinity, 2.0f}, 3).size(), 2u);
}

TEST(Sampler, GreedyTakesTheLowestIdOfEquals) {
  Sampler sampler;
  std::vector<float> logits(1000, 1.0f);
  EXPECT_EQ(sampler.draw({}, logits, {}, 5).token, 0);
  logits[777] = logits[778] = logits[999] = 2.0f;
  EXPECT_EQ(sampler.draw({}, logits, {}, 5).token, 777);
}

TEST(Sampler, FiltersTakeTheLowestIdsOfEquals) {
  Sampler sampler;
  std::vector<float> logits(1000, 0.0f);
  logits[500] = 1.0f;
  for (const SamplingParams& params : {SamplingParams{.temperature = 1.0f, .top_k = 3},
                                       // 500 weighs e, the others 1 each.
                                       SamplingParams{.temperature = 1.0f, .top_p = 4.0f / 1001.8f}}) {
    const auto entries = test::distribution(sampler, params, logits, {});
    ASSERT_EQ(entries.size(), 3u);
    EXPECT_EQ(entries[0].token, 500);
    EXPECT_EQ(entries[1].token, 0);
    EXPECT_EQ(entries[2].token, 1);
  }
}

// The whole definition in one line, over every surviving id.
Token naive_gumbel_max(const SamplingParams& params, std::span<const float> logits,
                       std::span<const test::Chance> survivors, uint32_t position) {
  Token winner = kNoToken;
  double winning = 0;
  for (const auto& [token, probability] : survivors) {
    const double total = static_cast<double>(logits[token]) / params.temperature +
                         gumbel({params.seed, params.choice, position, Purpose::kSample}, token);
    if (winner == kNoToken || total > winning || (total == winning && token < winner)) winner = token, winning = total;
  }
  return winner;
}

TEST(Sampler, DrawsTheGumbelMaximumOfAllSurvivors) {
  Sampler sampler;
  int32_t position = 0;
  for (const float temperature : {0.1f, 0.7f, 1.0f, 5.0f})
    for (const float spread : {0.1f, 1.0f, 4.0f, 20.0f})
      for (const SamplingParams& filters : {SamplingParams{}, SamplingParams{.top_k = 50},
                                            SamplingParams{.top_p = 0.9f}, SamplingParams{.min_p = 0.1f}}) {
        SamplingParams params = filters;
        params.temperature = temperature;
        params.seed = 77;
        const std::vector<float> logits = random_logits(1999, static_cast<uint32_t>(position), spread);
        const auto survivors = test::distribution(sampler, params, logits, {});
        for (int i = 0; i < 8; ++i, ++position)
          ASSERT_EQ(sampler.draw(params, logits, {}, position).token,
                    naive_gumbel_max(params, logits, survivors, static_cast<uint32_t>(position)));
      }
}

// Draws at many positions against the distribution; the bound is the chi-square quantile of one in ten thousand.
void expect_distributed(SamplingParams params, std::span<const float> logits, double bound) {
  Sampler sampler;
  constexpr int kDraws = 20000;
  std::map<Token, int> counts;
  for (int position = 0; position < kDraws; ++position) ++counts[sampler.draw(params, logits, {}, position).token];
  double chi_square = 0;
  int counted = 0;
  for (const auto& [token, probability] : reference(params, logits, {})) {
    const double expected = probability * kDraws;
    ASSERT_GT(expected, 5.0) << "a test of chi-square needs more draws";
    chi_square += (counts[token] - expected) * (counts[token] - expected) / expected;
    counted += counts[token];
  }
  EXPECT_EQ(counted, kDraws) << "a token was drawn that a filter had excluded";
  EXPECT_LT(chi_square, bound);
}

TEST(Sampler, DrawsFromTheSoftmax) {
  const std::vector<float> logits{0.0f, 1.0f, -1.0f, 2.0f, 0.5f, -2.0f, 1.5f, 0.25f, -0.75f, 1.25f, 0.0f, -1.5f};
  expect_distributed({.temperature = 1.0f, .seed = 1}, logits, 37.4);  // 11 degrees of freedom
  expect_distributed({.temperature = 2.0f, .seed = 2, .choice = 3}, logits, 37.4);
}

TEST(Sampler, DrawsFromWhatTheFiltersLeave) {
  const std::vector<float> logits{0.0f, 1.0f, -1.0f, 2.0f, 0.5f, -2.0f, 1.5f, 0.25f, -0.75f, 1.25f, 0.0f, -1.5f};
  expect_distributed({.temperature = 1.0f, .top_k = 5, .seed = 3}, logits, 23.6);  // 4 degrees of freedom
  expect_distributed({.temperature = 1.5f, .top_p = 0.8f, .seed = 4}, logits, 31.9);
  expect_distributed({.temperature = 1.0f, .min_p = 0.2f, .seed = 5}, logits, 31.9);
}

TEST(Sampler, DependsOnSeedChoiceAndPositionOnly) {
  const std::vector<float> logits = random_logits(300, 9, 1.0f);
  Sampler used, fresh;
  const SamplingParams params{.temperature = 1.0f, .seed = 123456789012345ull};
  const auto text = [&](Sampler& sampler, SamplingParams p) {
    std::vector<Token> tokens;
    for (int position = 0; position < 50; ++position) tokens.push_back(sampler.draw(p, logits, {}, position).token);
    return tokens;
  };
  used.draw({.temperature = 2.0f, .top_k = 7, .repeat_penalty = 2.0f}, random_logits(5000, 1), std::vector<Token>{1},
            4);
  const auto tokens = text(used, params);
  EXPECT_EQ(tokens, text(fresh, params));
  std::vector<Token> backwards;
  for (int position = 50; position-- > 0;)
    backwards.insert(backwards.begin(), fresh.draw(params, logits, {}, position).token);
  EXPECT_EQ(tokens, backwards);
  SamplingParams other = params;
  other.choice = 1;
  EXPECT_NE(tokens, text(fresh, other));
  other = params;
  other.seed += 1ull << 40;
  EXPECT_NE(tokens, text(fresh, other));
}

TEST(Sampler, LogprobIsThatOfTheRawLogits) {
  Sampler sampler;
  const std::vector<float> logits = random_logits(4001, 6);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  const std::vector<Token> history{1, 2, 3};
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.temperature = 3.0f, .seed = 8},
        SamplingParams{.temperature = 0.5f, .top_k = 3, .repeat_penalty = 1.5f, .logit_bias = {{1000, 9.0f}}}})
    for (int position = 0; position < 20; ++position) {
      const Draw draw = sampler.draw(params, logits, history, position);
      EXPECT_NEAR(draw.logprob, logits[draw.token] - std::log(sum), 2e-6);
    }
}

TEST(Sampler, NaNAndMinusInfinityAreNeverDrawnAndInfinityAlwaysIs) {
  Sampler sampler;
  for (const float temperature : {0.0f, 1.0f}) {
    const SamplingParams params{.temperature = temperature};
    for (int position = 0; position < 20; ++position) {
      EXPECT_EQ(sampler.draw(params, std::vector{kNaN, -kInfinity, -5.0f, kNaN}, {}, position).token, 2);
      const Draw certain = sampler.draw(params, std::vector{kNaN, 3.0f, kInfinity, -kInfinity}, {}, position);
      EXPECT_EQ(certain.token, 2);
      EXPECT_EQ(certain.logprob, 0.0f);
    }
  }
}

TEST(Sampler, WithNothingFiniteTokenZeroIsCertain) {
  Sampler sampler;
  for (const float value : {kNaN, -kInfinity})
    for (const SamplingParams& params :
         {SamplingParams{}, SamplingParams{.temperature = 1.0f, .top_k = 2, .top_p = 0.5f, .min_p = 0.1f}}) {
      const std::vector<float> logits(100, value);
      const Draw draw = sampler.draw(params, logits, {}, 0);
      EXPECT_EQ(draw.token, 0);
      EXPECT_EQ(draw.logprob, 0.0f);
      const auto entries = test::distribution(sampler, params, logits, {});
      ASSERT_EQ(entries.size(), 1u);
      EXPECT_EQ(entries[0].token, 0);
      EXPECT_EQ(entries[0].probability, 1.0);
    }
}

TEST(Sampler, ExtremeButFiniteInputGivesATokenOfTheVocabulary) {
  Sampler sampler;
  constexpr float kMax = std::numeric_limits<float>::max(), kTiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> logits{kMax, -kMax, 0.0f, kTiny, kMax};
  const std::vector<Token> history{0, 1, 2};
  for (const float temperature : {0.0f, kTiny, 1.0f, kMax})
    for (const float penalty : {kTiny, 1.0f, kMax})
      for (const float top_p : {kTiny, 1.0f}) {
        const SamplingParams params{
            .temperature = temperature, .top_p = top_p, .repeat_penalty = penalty, .logit_bias = {{4, kMax}}};
        const Draw draw = sampler.draw(params, logits, history, 1);
        EXPECT_GE(draw.token, 0);
        EXPECT_LT(draw.token, 5);
        EXPECT_FALSE(std::isnan(draw.logprob));
        EXPECT_GE(test::distribution(sampler, params, logits, history).size(), 1u);
      }
}

TEST(SamplingParams, SensibleOnesPass) {
  EXPECT_TRUE(check({}, 10));
  EXPECT_TRUE(check({.temperature = 1.0f,
                     .top_k = 50,
                     .top_p = 0.9f,
                     .min_p = 1.0f,
                     .repeat_penalty = 0.5f,
                     .logit_bias = {{0, -100.0f}, {9, 100.0f}}},
                    10));
}

TEST(SamplingParams, OthersNameTheParameterAndItsRange) {
  const auto message = [](const SamplingParams& params) {
    const Status status = check(params, 10);
    EXPECT_FALSE(status);
    if (status) return std::string();
    EXPECT_EQ(status.error().kind, ErrorKind::kInput);
    EXPECT_EQ(status.error().message.find('\n'), std::string::npos);
    return status.error().message;
  };
  for (const float bad : {-0.1f, kNaN, kInfinity})
    EXPECT_NE(message({.temperature = bad}).find("temperature"), std::string::npos);
  EXPECT_NE(message({.top_k = -1}).find("top-k"), std::string::npos);
  for (const float bad : {0.0f, -1.0f, 1.01f, kNaN})
    EXPECT_NE(message({.top_p = bad}).find("top-p"), std::string::npos);
  for (const float bad : {-0.01f, 1.01f, kNaN}) EXPECT_NE(message({.min_p = bad}).find("min-p"), std::string::npos);
  for (const float bad : {0.0f, -1.0f, kNaN, kInfinity})
    EXPECT_NE(message({.repeat_penalty = bad}).find("penalty"), std::string::npos);
  for (const float bad : {kNaN, kInfinity, -kInfinity}) {
    EXPECT_NE(message({.presence_penalty = bad}).find("presence"), std::string::npos);
    EXPECT_NE(message({.frequency_penalty = bad}).find("frequency"), std::string::npos);
  }
  EXPECT_NE(message({.answer_from = -1}).find("position 0"), std::string::npos);
  for (const int32_t bad : {-1, kMostTopLogprobs + 1})
    EXPECT_NE(message({.top_logprobs = bad}).find("0 to 20"), std::string::npos);
  for (const Token bad : {-1, 10}) EXPECT_NE(message({.logit_bias = {{bad, 1.0f}}}).find("0 to 9"), std::string::npos);
  EXPECT_NE(message({.logit_bias = {{3, kNaN}}}).find("token 3"), std::string::npos);
}

// Threads that take the parts in any order.
Spread threads(size_t n_threads) {
  return {n_threads, [n_threads](size_t n, const Spread::Part& part) {
            std::vector<std::jthread> team;
            for (size_t thread = 0; thread < n_threads; ++thread)
              team.emplace_back([&part, n, n_threads, thread] {
                for (size_t i = thread; i < n; i += n_threads) part(n - 1 - i, thread);
              });
          }};
}

TEST(Sampler, GivesTheSameBitsWithAnyNumberOfThreads) {
  std::vector<float> logits = random_logits(49152, 3, 2.0f);
  logits[17] = std::numeric_limits<float>::quiet_NaN();
  logits[40000] = logits[9];
  const std::vector<Token> history = {1, 9, 40000};
  const std::vector<SamplingParams> all = {{},
                                           {.temperature = 1.0f},
                                           {.temperature = 0.7f, .top_k = 40},
                                           {.temperature = 1.5f, .top_p = 0.9f},
                                           {.temperature = 1.0f, .min_p = 0.01f},
                                           {.temperature = 1.0f, .repeat_penalty = 1.3f, .logit_bias = {{5, 3.0f}}}};
  for (const size_t n_threads : {2, 3, 5})
    for (const SamplingParams& params : all)
      for (int32_t position = 3; position < 9; ++position) {
        Sampler alone, spread;
        spread.spread(threads(n_threads));
        const Draw one = alone.draw(params, logits, history, position);
        const Draw other = spread.draw(params, logits, history, position);
        EXPECT_EQ(one.token, other.token);
        EXPECT_EQ(std::bit_cast<uint32_t>(one.logprob), std::bit_cast<uint32_t>(other.logprob));
        const auto p = alone.probabilities(params, logits, history),
                   same = spread.probabilities(params, logits, history);
        EXPECT_TRUE(std::equal(p.begin(), p.end(), same.begin(), same.end()));
      }
}

}  // namespace
}  // namespace sluice

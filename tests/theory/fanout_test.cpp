// SSD: rounds, and how the cache's guesses are shared out.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "theory/draws.h"
#include "theory/theory.h"

namespace sluice::theory {
namespace {

// The rank of the bonus token among the guesses in order: beyond F with the probability that the law gives.
double bonus_rank(const PowerLaw& law, Draws& draws) {
  const double u = draws.uniform();
  return u >= law.scale ? 1.0 : std::pow(law.scale / u, 1.0 / law.exponent);
}

bool cached(const std::vector<double>& fanout, int accepted, const PowerLaw& law, Draws& draws) {
  return bonus_rank(law, draws) <= fanout[static_cast<size_t>(accepted)];
}

struct Case {
  double acceptance;
  int lookahead;
  PowerLaw law;
  double budget;
};
const Case kCases[] = {{0.6, 3, {0.5, 0.8}, 16}, {0.8, 5, {0.6, 1.3}, 24}, {0.9, 7, {0.35, 0.6}, 64}};

std::vector<double> as_doubles(const std::vector<int>& fanout) { return {fanout.begin(), fanout.end()}; }

TEST(Ssd, CacheHitRateIsThatOfPowerLawOutcomes) {
  for (const auto& [acceptance, lookahead, law, budget] : kCases) {
    Draws draws(11);
    const auto lengths = accepted_length_distribution(acceptance, lookahead);
    const auto fanout = as_doubles(best_fanout(lengths, law, static_cast<int>(budget)));
    constexpr int kRounds = 200000;
    int hits = 0;
    for (int i = 0; i < kRounds; ++i) hits += cached(fanout, draws.accepted(acceptance, lookahead), law, draws);
    expect_close(static_cast<double>(hits) / kRounds, cache_hit_rate(lengths, fanout, law));
  }
}

// Rounds of one target pass. The next speculation is there when the outcome was cached (and pre-speculation is done);
// otherwise the fallback drafts it while the target waits.
TEST(Ssd, SpeedupIsThatOfItsRounds) {
  struct Fallback {
    double acceptance;
    int lookahead;
    double time;
  };
  for (const auto& [acceptance, lookahead, law, budget] : kCases)
    for (const Fallback& fallback : {Fallback{acceptance, lookahead, 0.7}, {0.3, 2, 0.01}})
      for (const double prespeculation : {0.8, 1.25}) {
        Draws draws(12);
        const double hit_rate = 0.85;
        double tokens = 0.0, time = 0.0;
        bool hit = true;
        for (int round = 0; round < 60000; ++round) {
          tokens += 1 + (hit ? draws.accepted(acceptance, lookahead)
                             : draws.accepted(fallback.acceptance, fallback.lookahead));
          hit = draws.chance(hit_rate);
          time += hit ? std::max(1.0, prespeculation) : 1.0 + fallback.time;
        }
        expect_close(tokens / time,
                     ssd_speedup({.tokens = expected_round_tokens(acceptance, lookahead),
                                  .hit_rate = hit_rate,
                                  .prespeculation_time = prespeculation,
                                  .fallback_time = fallback.time,
                                  .fallback_tokens = expected_round_tokens(fallback.acceptance, fallback.lookahead)}));
      }
}

// The hit rate differs after a fallback, whose accepted lengths are others: the share of hits is a chain's.
TEST(Ssd, HitsOfTwoKindsOfRoundsSettleAsAChainOfTwoStates) {
  const auto& [acceptance, lookahead, law, budget] = kCases[1];
  const double backup = 0.2;
  const auto lengths = accepted_length_distribution(acceptance, lookahead);
  const auto backup_lengths = accepted_length_distribution(backup, lookahead);
  const auto fanout = geometric_fanout(lengths, law.exponent, budget);
  Draws draws(13);
  constexpr int kRounds = 200000;
  bool hit = true;
  int hits = 0;
  for (int round = 0; round < kRounds; ++round) {
    hit = cached(fanout, draws.accepted(hit ? acceptance : backup, lookahead), law, draws);
    hits += hit;
  }
  expect_close(static_cast<double>(hits) / kRounds,
               steady_state_share(cache_hit_rate(lengths, fanout, law), cache_hit_rate(backup_lengths, fanout, law)));
}

TEST(Ssd, WithoutHitsIsSpeculativeDecodingAndWithAllHidesTheDraft) {
  const double draft_ratio = 10.0;
  const int lookahead = 6;
  SsdRound round{.tokens = expected_round_tokens(0.8, lookahead),
                 .hit_rate = 0.0,
                 .prespeculation_time = 0.9,
                 .fallback_time = lookahead / draft_ratio,
                 .fallback_tokens = expected_round_tokens(0.8, lookahead)};
  EXPECT_NEAR(ssd_speedup(round), sd_speedup(0.8, lookahead, draft_ratio), 1e-12);
  round.hit_rate = 1.0;
  EXPECT_NEAR(ssd_speedup(round) / sd_speedup(0.8, lookahead, draft_ratio), 1.0 + lookahead / draft_ratio, 1e-12);
}

TEST(Fanout, HasSaguarosShape) {
  const double a = 0.8, r = 1.3, budget = 40;
  const int lookahead = 5;
  const auto fanout = geometric_fanout(accepted_length_distribution(a, lookahead), r, budget);
  EXPECT_NEAR(std::accumulate(fanout.begin(), fanout.end(), 0.0), budget, 1e-9);
  for (int k = 0; k < lookahead; ++k)
    EXPECT_NEAR(fanout[static_cast<size_t>(k)], fanout[0] * std::pow(a, k / (1 + r)), 1e-9);
  EXPECT_NEAR(fanout[lookahead], fanout[0] * std::pow(a, lookahead / (1 + r)) * std::pow(1 - a, -1 / (1 + r)), 1e-9);
}

TEST(Fanout, OfSaguaroCannotBeImprovedByMovingGuesses) {
  for (const auto& [acceptance, lookahead, law, budget] : kCases) {
    const auto lengths = accepted_length_distribution(acceptance, lookahead);
    const auto misses = [&, r = law.exponent](const std::vector<double>& fanout) {
      double sum = 0.0;
      for (size_t k = 0; k < fanout.size(); ++k) sum += lengths[k] * std::pow(fanout[k], -r);
      return sum;
    };
    const auto best = geometric_fanout(lengths, law.exponent, budget);
    for (size_t from = 0; from < best.size(); ++from)
      for (size_t to = 0; to < best.size(); ++to) {
        auto moved = best;
        const double amount = 0.05 * best[from];
        moved[from] -= amount;
        moved[to] += amount;
        EXPECT_LE(misses(best), misses(moved) + 1e-12);
      }
  }
}

// The best of all ways to put at most `left` guesses on the lengths from k on.
double brute_force(const std::vector<double>& lengths, const PowerLaw& law, size_t k, int left) {
  if (k == lengths.size()) return 0.0;
  double best = 0.0;
  for (int f = 0; f <= left; ++f)
    best = std::max(best, lengths[k] * (1.0 - law.miss(f)) + brute_force(lengths, law, k + 1, left - f));
  return best;
}

TEST(Fanout, InIntegersIsTheBestOfAll) {
  // The last two laws gain less by the first guess than by the second, the last nothing at all.
  const PowerLaw laws[] = {{0.3, 0.5}, {0.5, 1.0}, {0.6, 2.0}, {0.9, 1.5}, {1.4, 1.0}};
  for (const PowerLaw& law : laws)
    for (const double acceptance : {0.0, 0.3, 0.8, 0.95, 1.0})
      for (const int lookahead : {0, 1, 3})
        for (int budget = 0; budget <= 9; ++budget) {
          const auto lengths = accepted_length_distribution(acceptance, lookahead);
          const auto fanout = best_fanout(lengths, law, budget);
          EXPECT_LE(std::accumulate(fanout.begin(), fanout.end(), 0), budget);
          EXPECT_NEAR(cache_hit_rate(lengths, as_doubles(fanout), law), brute_force(lengths, law, 0, budget), 1e-12);
        }
}

TEST(Fanout, InIntegersFollowsTheRealOneWhereGuessesAreMany) {
  const auto lengths = accepted_length_distribution(0.8, 6);
  const PowerLaw law{0.5, 0.9};
  const auto real = geometric_fanout(lengths, law.exponent, 200);
  const auto whole = best_fanout(lengths, law, 200);
  for (size_t k = 0; k < real.size(); ++k) EXPECT_NEAR(whole[k], real[k], 1.0);
}

TEST(PowerLaw, IsFoundInItsOwnValues) {
  std::vector<std::pair<double, double>> misses;
  for (const double guesses : {1, 2, 4, 8, 16}) misses.push_back({guesses, 0.45 * std::pow(guesses, -0.7)});
  const auto law = fit_power_law(misses);
  ASSERT_TRUE(law);
  EXPECT_NEAR(law->scale, 0.45, 1e-12);
  EXPECT_NEAR(law->exponent, 0.7, 1e-12);
}

TEST(PowerLaw, IsFoundInMeasuredMisses) {
  for (const PowerLaw& truth : {PowerLaw{0.5, 0.6}, PowerLaw{0.8, 1.1}}) {
    Draws draws(14);
    constexpr int kOutcomes = 200000;
    std::vector<std::pair<double, double>> misses = {{1, 0}, {2, 0}, {3, 0}, {5, 0}, {8, 0}};
    for (int i = 0; i < kOutcomes; ++i) {
      const double rank = bonus_rank(truth, draws);
      for (auto& [guesses, miss] : misses) miss += (rank > guesses) / static_cast<double>(kOutcomes);
    }
    const auto law = fit_power_law(misses);
    ASSERT_TRUE(law);
    expect_close(law->scale, truth.scale);
    expect_close(law->exponent, truth.exponent);
  }
}

TEST(PowerLaw, IsNotFoundWhereMissesDoNotFall) {
  using Misses = std::vector<std::pair<double, double>>;
  EXPECT_FALSE(fit_power_law(Misses{}));
  EXPECT_FALSE(fit_power_law(Misses{{3, 0.2}, {3, 0.1}}));
  EXPECT_FALSE(fit_power_law(Misses{{1, 0.2}, {2, 0.2}}));
  EXPECT_FALSE(fit_power_law(Misses{{1, 0.2}, {2, 0.3}}));
  EXPECT_FALSE(fit_power_law(Misses{{1, 0.2}, {2, 0.0}})) << "one pair is left";
}

}  // namespace
}  // namespace sluice::theory

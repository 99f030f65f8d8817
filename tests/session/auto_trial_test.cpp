#include "session/auto_trial.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "session/policy.h"

namespace sluice {
namespace {

// A run whose speculative method gives `speculative` tokens a second and plain decoding `plain`, a token at a time.
// How many of the tokens after the first two turns came from plain decoding.
double share_of_plain(double speculative, double plain, int tokens) {
  AutoTrial trial("specpipe");
  bool on_plain = false;
  double now = 0;
  int64_t from_plain = 0, counted = 0;
  for (int64_t n = 1; n <= tokens; ++n) {
    now += 1.0 / (on_plain ? plain : speculative);
    if (n > 3 * policy::kTurn) {
      from_plain += on_plain;
      ++counted;
    }
    if (const auto next = trial.observe(n, now)) on_plain = *next == "ar";
  }
  EXPECT_NEAR(trial.speculative_rate(), speculative, 1e-6 * speculative);
  EXPECT_NEAR(trial.plain_rate(), plain, 1e-6 * plain);
  EXPECT_EQ(trial.prefers_plain(), plain >= speculative);
  return static_cast<double>(from_plain) / static_cast<double>(counted);
}

// Of the time that the faster one alone would take.
double lost(double speculative, double plain) {
  const double share = share_of_plain(speculative, plain, 20'000);
  return (share / plain + (1 - share) / speculative) * std::max(speculative, plain) - 1.0;
}

TEST(AutoTrial, SettlesOnTheFasterMethodAndTriesTheOtherAsOftenAsThatCostsLittle) {
  const double rounding = 1.1;
  for (const double slower : {29.0, 28.0, 20.0, 10.0}) {
    EXPECT_LE(lost(30, slower), rounding * policy::kTrialsCost) << slower;
    EXPECT_LE(lost(slower, 30), rounding * policy::kTrialsCost) << slower;
  }
  EXPECT_GT(share_of_plain(29, 30, 5000), 0.6);
  EXPECT_LT(share_of_plain(30, 29, 5000), 0.4);
}

TEST(AutoTrial, ATextThatBecomesEasyToGuessIsSpeculatedOnSoon) {
  AutoTrial trial("surge");
  bool on_plain = false;
  double now = 0;
  int64_t from_plain = 0;
  for (int64_t n = 1; n <= 400; ++n) {
    now += 1.0 / (on_plain ? 10 : n <= 40 ? 9 : 20);
    from_plain += on_plain;
    if (const auto next = trial.observe(n, now)) on_plain = *next == "ar";
  }
  EXPECT_FALSE(on_plain);
  EXPECT_LT(from_plain, 100);
}

TEST(AutoTrial, BeginsWithTheSpeculativeMethodAndThenTriesPlainDecoding) {
  AutoTrial trial("specpipe");
  for (int64_t n = 1; n < policy::kTurn; ++n) EXPECT_EQ(trial.observe(n, static_cast<double>(n)), std::nullopt);
  EXPECT_EQ(trial.observe(policy::kTurn, 100.0), "ar");
}

// How many tokens plain decoding gave to the answer of a method that was named.
int64_t plain_share_of_named(double speculative, double plain, bool clearly_slower) {
  AutoTrial trial("surge", AutoTrial::Purpose::kCompare);
  bool on_plain = false;
  int64_t from_plain = 0, switches = 0;
  double now = 0;
  for (int64_t n = 1; n <= 1000; ++n) {
    now += 1.0 / (on_plain ? plain : speculative);
    from_plain += on_plain;
    if (const auto next = trial.observe(n, now)) {
      on_plain = *next == "ar";
      ++switches;
    }
  }
  EXPECT_EQ(switches, 2);
  EXPECT_FALSE(on_plain);
  EXPECT_NEAR(trial.speculative_rate(), speculative, 1e-6 * speculative);
  EXPECT_NEAR(trial.plain_rate(), plain, 1e-6 * plain);
  EXPECT_EQ(trial.clearly_slower(), clearly_slower);
  return from_plain;
}

TEST(AutoTrial, ANamedMethodGoesOnAfterOneTurnOfPlainDecoding) {
  EXPECT_LE(plain_share_of_named(10, 30, true), policy::kTurn);
  EXPECT_LE(plain_share_of_named(10, 11, false), policy::kTurn) << "not clearly";
}

TEST(AutoTrial, PlainDecodingThatIsSlowerHasAShorterTurn) {
  EXPECT_LE(plain_share_of_named(30, 10, false), policy::kTurn / 2);
}

TEST(AutoTrial, AFewTokensTellThatPlainDecodingIsNoMatch) {
  AutoTrial trial("surge");
  bool on_plain = false;
  int64_t from_plain = 0;
  double now = 0;
  for (int64_t n = 1; n <= 8 * policy::kTurn; ++n) {
    now += 1.0 / (on_plain ? 10 : 50);
    from_plain += on_plain;
    if (const auto next = trial.observe(n, now)) on_plain = *next == "ar";
  }
  EXPECT_EQ(from_plain, policy::kWarmUp + policy::kTells);
}

TEST(AutoTrial, PlainDecodingThatCannotWinGetsNoTurn) {
  AutoTrial trial("surge");
  for (int64_t n = 1; n <= 1000; ++n) EXPECT_EQ(trial.observe(n, static_cast<double>(n) / 50, 40.0), std::nullopt);
  bool turned = false;
  for (int64_t n = 1001; n <= 1000 + 2 * policy::kTurn; ++n)
    turned = turned || trial.observe(n, static_cast<double>(n) / 50, 51.0).has_value();
  EXPECT_TRUE(turned) << "it may";
}

TEST(AutoTrial, HearingOfNoNewTokenChangesNothing) {
  AutoTrial trial("specpipe");
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(trial.observe(5, i), std::nullopt);
  EXPECT_EQ(trial.plain_rate(), 0.0);
}

}  // namespace
}  // namespace sluice

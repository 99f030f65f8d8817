#include "base/pass_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace sluice {
namespace {

TEST(PassTimes, LiesOnALineBetweenWidthsThatWereSeenAndIsTakenForCheapBeyond) {
  PassTimes times;
  EXPECT_EQ(times.seconds(4), 0.0);
  PassTimes once;
  once.saw(4, 2.0);
  EXPECT_DOUBLE_EQ(once.seconds(64), 2.0);
  EXPECT_DOUBLE_EQ(once.seconds(2), 1.0);
  times.saw(2, 1.0);
  times.saw(6, 3.0);
  EXPECT_DOUBLE_EQ(times.seconds(1), 0.5);
  EXPECT_DOUBLE_EQ(times.seconds(2), 1.0);
  EXPECT_DOUBLE_EQ(times.seconds(3), 1.5);
  EXPECT_DOUBLE_EQ(times.seconds(6), 3.0);
  EXPECT_DOUBLE_EQ(times.seconds(14), 7.0);
}

// The first guesses are not to be paid for as if rows cost nothing, when a prompt has just shown what they cost.
TEST(PassTimes, BesideTheOnlyWidthThatIsKnownRowsCostWhatAPromptsDid) {
  PassTimes times;
  times.saw_others(40, 22.0);
  times.saw_others(20, 16.0);  // held up
  EXPECT_EQ(times.seconds(40), 0.0) << "what a pass takes is not known of prompts";
  times.saw(4, 4.0);
  EXPECT_DOUBLE_EQ(times.seconds(6), 5.0);
  const std::vector<double> chances = {0.6, 0.4, 0.4};  // a row costs 0.5
  EXPECT_EQ(times.best_addition(4, chances, 1.0), 1u);
  EXPECT_EQ(times.best_addition(4, std::vector<double>{0.4}, 1.0), 0u);
  times.saw(5, 4.1);
  EXPECT_DOUBLE_EQ(times.seconds(6), 4.2) << "now it is known better";
  PassTimes flat;  // a device on which rows are free
  flat.saw_others(40, 4.0);
  flat.saw(4, 4.0);
  EXPECT_EQ(flat.best_addition(4, chances, 1.0), 3u);
}

// It is taken for cheap, so the step is small beside the rows that are there.
TEST(PassTimes, WhatIsWiderThanAnythingSeenIsTriedStepByStep) {
  PassTimes times;
  times.saw(1, 1.0);
  EXPECT_EQ(times.widest_try(), 9);
  PassTimes wide;
  wide.saw(16, 1.0);
  EXPECT_EQ(wide.widest_try(), 20);
  wide.saw(20, 1.0);
  EXPECT_EQ(wide.widest_try(), 28);
  wide.saw(64, 1.0);
  EXPECT_EQ(wide.widest_try(), 80);
}

// One pass that was held up makes the next wider one look cheap, and then passes of the first width are seen no more.
TEST(PassTimes, WhatGainsLittleIsLeftOutFromWhileToWhile) {
  PassTimes times;
  const auto cost = [](int32_t rows) { return 10.0 + 0.5 * rows; };
  for (int i = 0; i < 3; ++i) times.saw(16, 1.2 * cost(16));
  const std::vector<double> gains = {0.1};
  int with = 0;
  for (int i = 0; i < 200; ++i) {
    const auto rows = 16 + static_cast<int32_t>(times.best_addition(16, gains, 1.0));
    times.saw(rows, cost(rows));
    with += rows > 16;
  }
  EXPECT_LT(with, 160) << "it costs 0.5 and gains 0.1";
  const std::vector<double> much = {0.9, 0.9, 0.9, 0.9};
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(times.best_addition(16, much, 1.0), 4u) << "pass " << i;
    times.saw(20, cost(20));
  }
}

TEST(PassTimes, WhatOneWidthShowsCountsForThoseBesideIt) {
  PassTimes times;
  for (int i = 0; i < 8; ++i)
    for (const int32_t rows : {16, 17, 18, 20}) times.saw(rows, rows);
  EXPECT_NEAR(times.seconds(16), 16.0, 1e-9);
  EXPECT_NEAR(times.seconds(19), 19.0, 1e-9);
  PassTimes held_up = times;
  held_up.saw(24, 60.0);
  EXPECT_NEAR(held_up.seconds(18), 18.0, 2.0);
  EXPECT_GT(held_up.seconds(24), 30.0);
}

TEST(PassTimes, OnePassInThreeMayBeHeldUp) {
  PassTimes times;
  times.saw(1, 2.0);
  times.saw(1, 100.0);
  EXPECT_EQ(times.seconds(1), 2.0);
  times.saw(1, 2.5);
  EXPECT_EQ(times.seconds(1), 2.5);
  times.saw(0, 50.0);  // a batch without rows says nothing
  EXPECT_EQ(times.seconds(1), 2.5);
  times.saw(1, 1000.0);
  EXPECT_LT(times.seconds(1), 5.0);
  for (int i = 0; i < 12; ++i) times.saw(1, 2.5);
  EXPECT_NEAR(times.seconds(1), 2.5, 0.15);
  for (int i = 0; i < 12; ++i) times.saw(1, 7.0);
  EXPECT_NEAR(times.seconds(1), 7.0, 0.3);
}

// What a row costs is told from widths that were seen at different times, between which the machine may have changed.
TEST(PassTimes, AMachineThatHasBecomeSlowerDoesNotMakeAWidthLookDear) {
  PassTimes times;
  const auto cost = [](int32_t rows) { return 10.0 + 0.5 * rows; };
  for (int i = 0; i < 20; ++i)
    for (const int32_t rows : {16, 18, 24}) times.saw(rows, cost(rows));
  for (int i = 0; i < 40; ++i) times.saw(16, 1.6 * cost(16));
  EXPECT_NEAR(times.seconds(16), 1.6 * cost(16), 0.2);
  EXPECT_NEAR(times.seconds(24) - times.seconds(16), 1.6 * 8 * 0.5, 1.0);
}

TEST(PassTimes, AWidthThatWasHeldUpOnceIsTriedAgain) {
  PassTimes times;
  times.saw(8, 100.0);
  for (int i = 0; i < 30; ++i) times.saw(4, 1.0);
  EXPECT_EQ(times.seconds(8), 100.0);
  for (int i = 0; i < 3; ++i) times.saw(4, 1.0);
  EXPECT_EQ(times.seconds(8), 80.0);
  for (int i = 0; i < 700; ++i) times.saw(4, 1.0);
  EXPECT_EQ(times.seconds(8), 1.0);  // not less than those beside it
  times.saw(8, 1.5);
  EXPECT_EQ(times.seconds(8), 1.5);
  for (int i = 0; i < 3; ++i) times.saw(8, 100.0);
  const double sure = times.seconds(8);
  for (int i = 0; i < 100; ++i) times.saw(4, 1.0);
  EXPECT_NEAR(times.seconds(8), sure, 0.5 * sure);  // seen often enough
}

// What looks dear is not chosen, so nobody would see that it isn't.
TEST(PassTimes, AWellKnownWidthThatWasHeldUpOnceIsTriedAgain) {
  PassTimes times;
  const auto cost = [](int32_t rows) { return 10.0 + 0.5 * rows; };
  const std::vector<double> gains(8, 0.7);
  for (int i = 0; i < 40; ++i)
    for (const int32_t rows : {16, 24}) times.saw(rows, cost(rows));
  EXPECT_EQ(times.best_addition(16, gains, 1.0), 8u);
  for (int i = 0; i < 40; ++i) times.saw(16, cost(16));
  times.saw(24, 3.0 * cost(24));
  EXPECT_EQ(times.best_addition(16, gains, 1.0), 0u);
  int with = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto rows = 16 + static_cast<int32_t>(times.best_addition(16, gains, 1.0));
    times.saw(rows, cost(rows));
    with += rows == 24;
  }
  EXPECT_GT(with, 1000);
}

// Where it is dear indeed, looking again costs little.
TEST(PassTimes, AWidthThatIsDearIsSeldomTriedAgain) {
  PassTimes times;
  const auto cost = [](int32_t rows) { return rows <= 16 ? 10.0 : 20.0; };
  const std::vector<double> gains(8, 1.0);
  for (int i = 0; i < 40; ++i)
    for (const int32_t rows : {12, 16, 24, 32}) times.saw(rows, cost(rows));
  int with = 0;
  for (int i = 0; i < 5000; ++i) {
    const auto rows = 16 + static_cast<int32_t>(times.best_addition(16, gains, 1.0));
    times.saw(rows, cost(rows));
    with += rows > 16;
  }
  EXPECT_LT(with, 50);
}

TEST(PassTimes, MayBeNothing) {
  PassTimes times;
  for (int i = 0; i < 5000; ++i) times.saw(1 + i % 40, 0.0);
  EXPECT_NEAR(times.seconds(64), 0.0, 1e-9);
  EXPECT_EQ(times.best_addition(1, std::vector{0.5, 0.1}, 1.0), 2u);
  for (int i = 0; i < 5000; ++i) times.saw(1 + i % 40, 1.0);
  EXPECT_NEAR(times.seconds(20), 1.0, 0.1);
}

// A price is a small difference of large times.
TEST(PassTimes, WhatIsNoMoreThanPassesDifferDoesNotPay) {
  PassTimes steady, unsteady;
  for (int i = 0; i < 64; ++i)
    for (const int32_t rows : {16, 20}) {
      steady.saw(rows, 20.0);
      unsteady.saw(rows, (i / 2) % 2 == 0 ? 17.0 : 23.0);
    }
  const std::vector<double> few = {0.2, 0.05}, many(4, 0.9);
  EXPECT_EQ(steady.best_addition(16, few, 1.0), 2u);
  EXPECT_EQ(unsteady.best_addition(16, few, 1.0), 0u);
  EXPECT_EQ(unsteady.best_addition(16, many, 1.0), 4u);
}

// By trying every number of rows.
TEST(PassTimes, TheBestAdditionIsTheOneThatGainsMost) {
  PassTimes times;
  for (int32_t rows = 1; rows <= 9; ++rows) times.saw(rows, rows <= 3 ? 1.0 : 0.4 * rows);
  for (const int32_t base : {0, 1, 2, 3, 8})
    for (const double worth : {0.01, 0.5, 1.0, 2.0, 4.0, 40.0})
      for (const std::vector<double>& gains :
           {std::vector{1.0, 0.8, 0.5, 0.3, 0.1, 0.01}, std::vector{0.02, 0.01}, {1.0}}) {
        size_t best = 0;
        double most = -1e300;
        for (size_t n = base == 0 ? 1 : 0; n <= gains.size(); ++n) {
          const double value = std::accumulate(gains.begin(), gains.begin() + static_cast<ptrdiff_t>(n), 0.0) * worth -
                               times.seconds(base + static_cast<int32_t>(n));
          if (value > most) best = n, most = value;
        }
        EXPECT_EQ(times.best_addition(base, gains, worth), best) << base << " rows, worth " << worth;
      }
  EXPECT_EQ(times.best_addition(0, {}, 1.0), 0u);
}

TEST(PassTimes, WhatAGuessAddsIsLookedUpWhereTheBatchIs) {
  PassTimes times;  // flat up to 8 rows
  times.saw(1, 1.0);
  times.saw(8, 1.0);
  times.saw(16, 2.0);
  const std::vector<double> gains(8, 0.1);
  EXPECT_EQ(times.best_addition(1, std::span(gains).first(7), 1.0), 7u);
  EXPECT_EQ(times.best_addition(8, gains, 1.0), 0u);
  EXPECT_EQ(times.best_addition(8, gains, 1.3), 8u);
}

// By looking at every width.
TEST(PassTimes, TheLeastPriceIsThatOfTheBestWidth) {
  PassTimes times;
  EXPECT_EQ(times.least_price(1, 64), 0.0);
  times.saw(1, 1.0);
  times.saw(4, 1.6);
  times.saw(8, 1.9);
  times.saw(32, 6.0);
  for (const int32_t base : {0, 1, 3, 4, 6, 8, 20, 32, 40})
    for (const int32_t most : {2, 8, 16, 64}) {
      const int32_t first = std::max(base, 1);
      double least = most > first ? 1e300 : 0.0;
      for (int32_t rows = first + 1; rows <= most; ++rows)
        least = std::min(least, (times.seconds(rows) - times.seconds(first)) / (rows - first));
      EXPECT_NEAR(times.least_price(base, most), least, 1e-12) << base << " of " << most;
    }
}

}  // namespace
}  // namespace sluice

#include "base/pass_times.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

TEST(PassTimes, LiesOnALineBetweenWidthsThatWereSeenAndIsFlatBeyond) {
  PassTimes times;
  EXPECT_EQ(times.seconds(4), 0.0);
  times.saw(2, 1.0);
  times.saw(6, 3.0);
  EXPECT_DOUBLE_EQ(times.seconds(1), 1.0);
  EXPECT_DOUBLE_EQ(times.seconds(2), 1.0);
  EXPECT_DOUBLE_EQ(times.seconds(3), 1.5);
  EXPECT_DOUBLE_EQ(times.seconds(6), 3.0);
  EXPECT_DOUBLE_EQ(times.seconds(64), 3.0);
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
  for (int i = 0; i < 2; ++i) times.saw(1, 7.0);
  EXPECT_EQ(times.seconds(1), 7.0);
}

TEST(PassTimes, AWidthThatWasHeldUpOnceIsTriedAgain) {
  PassTimes times;
  times.saw(8, 100.0);
  for (int i = 0; i < 30; ++i) times.saw(4, 1.0);
  EXPECT_EQ(times.seconds(8), 100.0);
  for (int i = 0; i < 3; ++i) times.saw(4, 1.0);
  EXPECT_EQ(times.seconds(8), 1.0);  // what the widest takes
  for (int i = 0; i < 3; ++i) times.saw(8, 100.0);
  for (int i = 0; i < 100; ++i) times.saw(4, 1.0);
  EXPECT_EQ(times.seconds(8), 100.0);  // seen often enough
}

// By trying every width.
TEST(PassTimes, TheBestWidthIsTheOneThatGainsMost) {
  PassTimes times;
  for (int32_t rows = 1; rows <= 6; ++rows) times.saw(rows, rows <= 3 ? 1.0 : 0.4 * rows);
  for (const double worth : {0.01, 0.5, 1.0, 2.0, 4.0, 40.0})
    for (const std::vector<double>& gains :
         {std::vector{1.0, 0.8, 0.5, 0.3, 0.1, 0.01}, std::vector{0.02, 0.01}, {1.0}}) {
      size_t best = 0;
      double most = -1e300, sum = 0.0;
      for (size_t w = 1; w <= gains.size(); ++w) {
        sum += gains[w - 1];
        const double value = sum * worth - times.seconds(static_cast<int32_t>(w));
        if (value > most) best = w, most = value;
      }
      EXPECT_EQ(times.best_width(gains, worth), best) << worth;
    }
  EXPECT_EQ(times.best_width({}, 1.0), 0u);
}

}  // namespace
}  // namespace sluice

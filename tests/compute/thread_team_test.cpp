#include "compute/thread_team.h"

#include <gtest/gtest.h>

#include <numeric>

namespace sluice {
namespace {

TEST(ThreadTeam, EveryThreadWorksOnceInEveryRegion) {
  for (const int n : {1, 2, 3, 5}) {
    ThreadTeam team(n);
    std::vector<int> regions(static_cast<size_t>(n), 0);
    for (int i = 0; i < 200; ++i) team.run([&](int thread) { ++regions[static_cast<size_t>(thread)]; });
    EXPECT_EQ(regions, std::vector<int>(static_cast<size_t>(n), 200));
  }
}

TEST(ThreadTeam, WhatWasWrittenBeforeABarrierIsSeenBehindIt) {
  constexpr int kThreads = 3, kRounds = 100;
  ThreadTeam team(kThreads);
  std::vector<int> written(kThreads, 0);
  std::vector<int> wrong(kThreads, 0);
  team.run([&](int thread) {
    for (int round = 1; round <= kRounds; ++round) {
      written[static_cast<size_t>(thread)] = round;
      team.barrier();
      for (const int value : written) wrong[static_cast<size_t>(thread)] += value != round;
      team.barrier();
    }
  });
  EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
}

TEST(PartOf, CoversEverythingOnceInWholeGrains) {
  for (const int64_t n : {0, 1, 7, 8, 9, 100, 576}) {
    for (const int threads : {1, 2, 3, 8}) {
      int64_t at = 0;
      for (int t = 0; t < threads; ++t) {
        const Part part = part_of(n, 8, t, threads);
        EXPECT_EQ(part.begin, at);
        EXPECT_TRUE(part.begin % 8 == 0 || part.empty());
        at = part.end;
      }
      EXPECT_EQ(at, n);
    }
  }
}

}  // namespace
}  // namespace sluice

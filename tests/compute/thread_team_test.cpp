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

TEST(Pieces, AreTakenOnceEachAndCoverEverything) {
  constexpr int64_t kGrain = 16;
  for (const int64_t n : {0, 1, 16, 100, 1536}) {
    for (const int64_t n_pieces : {1, 3, 8}) {
      ThreadTeam team(3);
      Pieces pieces;
      std::vector<int> taken(static_cast<size_t>(n), 0), uneven(3, 0);
      for (int round = 1; round <= 3; ++round) {
        pieces.restart();
        team.run([&](int thread) {
          const auto next = [&] { return pieces.take(n, kGrain, n_pieces); };
          for (Part part = next(); !part.empty(); part = next()) {
            uneven[static_cast<size_t>(thread)] += part.begin % kGrain != 0;
            for (int64_t i = part.begin; i < part.end; ++i) ++taken[static_cast<size_t>(i)];
          }
        });
        EXPECT_EQ(taken, std::vector<int>(static_cast<size_t>(n), round));
      }
      EXPECT_EQ(uneven, std::vector<int>(3, 0));
    }
  }
}

}  // namespace
}  // namespace sluice

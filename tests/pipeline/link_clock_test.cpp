#include "pipeline/link_clock.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice {
namespace {

DrawSite site(uint64_t seed, uint32_t number = 0) {
  return {.seed = seed, .position = number, .purpose = Purpose::kLink};
}

TEST(LinkClock, AFrameOccupiesTheLinkForItsBytesAndThenTakesTheLatency) {
  LinkClock link({.latency = 0.5, .bandwidth = 100}, site(0));
  EXPECT_DOUBLE_EQ(link.send(10.0, 25), 10.0 + 0.25 + 0.5);
  EXPECT_DOUBLE_EQ(link.occupied(25), 0.25);
}

// n frames of b bytes at once are there after n b / bandwidth + latency, not all after b / bandwidth + latency.
TEST(LinkClock, TheNextFrameWaitsUntilTheLinkIsFreeNotUntilTheOneBeforeHasArrived) {
  LinkClock link({.latency = 5.0, .bandwidth = 100}, site(0));
  for (int n = 1; n <= 4; ++n) EXPECT_DOUBLE_EQ(link.send(1.0, 50), 1.0 + 0.5 * n + 5.0);
  EXPECT_DOUBLE_EQ(link.send(3.5, 50), 3.5 + 0.5 + 5.0) << "it has been free since 3";
}

TEST(LinkClock, WithoutABoundOnBytesFramesDoNotWait) {
  LinkClock link({.latency = 2.0}, site(0));
  EXPECT_DOUBLE_EQ(link.send(1.0, 1e12), 3.0);
  EXPECT_DOUBLE_EQ(link.send(1.0, 1e12), 3.0);
  EXPECT_TRUE(LinkClock().is_free());
  EXPECT_FALSE(link.is_free());
}

TEST(LinkClock, JitterIsAShareOfTheLatencyAndAFunctionOfSeedLinkAndFrame) {
  const Link spec{.latency = 1.0, .jitter = 0.1};
  LinkClock link(spec, site(1)), same(spec, site(1)), other_seed(spec, site(2)), other_link(spec, site(1, 1));
  double least = 2, most = 0, sum = 0;
  bool differs_by_seed = false, differs_by_link = false;
  for (int i = 0; i < 400; ++i) {
    const double now = 10.0 * i, took = link.send(now, 64) - now;
    least = std::min(least, took);
    most = std::max(most, took);
    sum += took;
    EXPECT_EQ(same.send(now, 64) - now, took);
    differs_by_seed |= other_seed.send(now, 64) - now != took;
    differs_by_link |= other_link.send(now, 64) - now != took;
  }
  EXPECT_TRUE(differs_by_seed && differs_by_link);
  EXPECT_GE(least, 0.9);
  EXPECT_LT(least, 0.91);
  EXPECT_LE(most, 1.1);
  EXPECT_GT(most, 1.09);
  EXPECT_NEAR(sum / 400, 1.0, 0.01);
}

TEST(LinkClock, NoFrameOvertakesAnother) {
  LinkClock link({.latency = 1.0, .jitter = 1.0}, site(3));
  double last = 0;
  for (int i = 0; i < 400; ++i) {
    const double arrival = link.send(0.01 * i, 64);
    EXPECT_GE(arrival, last);
    EXPECT_GE(arrival, 0.01 * i);
    last = arrival;
  }
}

CostModel with_edges(const std::vector<double>& latencies) {
  Profile profile;
  profile.stage.points = {{1, 1.0}};
  profile.link = {.latency = 99};
  for (const double latency : latencies) profile.edges.push_back({.latency = latency, .bandwidth = 10.0 * latency});
  return {profile, std::vector<LayerRange>(latencies.size() - 1, LayerRange{0, 1}), 8};
}

TEST(Edges, WhatGoesPastBatchesTakesTheShorterWayRound) {
  const CostModel cost = with_edges({1, 2, 4, 8});
  for (size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(cost.edge(i).latency, static_cast<double>(1 << i));
  const double latencies[] = {1, 1 + 2, 1 + 2 + 4}, bandwidths[] = {10, 10, 10};
  for (int32_t s = 0; s < 3; ++s)
    for (const Link& link : {cost.to_stage(StageId(s)), cost.from_stage(StageId(s)), cost.taps_of(StageId(s))}) {
      EXPECT_DOUBLE_EQ(link.latency, latencies[s]);
      EXPECT_DOUBLE_EQ(link.bandwidth, bandwidths[s]) << "the narrowest on the way";
    }
  EXPECT_DOUBLE_EQ(with_edges({8, 4, 2, 1}).to_stage(StageId(0)).latency, 4 + 2 + 1);
}

TEST(Edges, OfOneLinkTheCoordinatorIsBesideTheFirstStageAndHearsOfAllAtOnce) {
  Profile profile;
  profile.stage.points = {{1, 1.0}};
  profile.link = {.latency = 0.25, .bandwidth = 1000};
  const CostModel cost(profile, {{0, 1}, {1, 2}}, 8);
  EXPECT_DOUBLE_EQ(cost.edge(0).seconds(100), 0);
  EXPECT_DOUBLE_EQ(cost.edge(1).seconds(100), 0.35);
  EXPECT_DOUBLE_EQ(cost.edge(2).seconds(100), 0.35);
  EXPECT_DOUBLE_EQ(cost.to_stage(StageId(0)).seconds(100), 0);
  EXPECT_DOUBLE_EQ(cost.to_stage(StageId(1)).seconds(100), 0.35);
  EXPECT_DOUBLE_EQ(cost.taps_of(StageId(0)).seconds(100), 0.35);
  for (const int32_t s : {0, 1}) EXPECT_DOUBLE_EQ(cost.from_stage(StageId(s)).seconds(100), 0);
}

}  // namespace
}  // namespace sluice

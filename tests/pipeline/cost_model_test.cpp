#include "pipeline/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

namespace sluice {
namespace {

std::string error_of(const std::vector<int32_t>& cuts, int32_t n_layers) {
  const auto ranges = explicit_cuts(cuts, n_layers);
  return ranges ? "" : ranges.error().message;
}

// The dearest stage of the best of all ways to cut.
double cheapest(const std::vector<double>& layers, double embedding, double head, const std::vector<double>& speeds) {
  const int32_t n = static_cast<int32_t>(layers.size());
  const std::function<double(int32_t, int32_t)> best = [&](int32_t first, int32_t stages) {
    const double speed = speeds[speeds.size() - static_cast<size_t>(stages)];
    double least = std::numeric_limits<double>::infinity();
    double cost = first == 0 ? embedding : 0.0;
    for (int32_t last = first + 1; last <= n - (stages - 1); ++last) {
      cost += layers[static_cast<size_t>(last - 1)];
      if (stages == 1 && last < n) continue;
      const double dearest = stages == 1 ? (cost + head) / speed : std::max(cost / speed, best(last, stages - 1));
      least = std::min(least, dearest);
    }
    return least;
  };
  return best(0, static_cast<int32_t>(speeds.size()));
}

TEST(CostModel, APassOfExpertsTakesAsLongAsThoseThatItsRowsWake) {
  Profile profile;
  profile.layer = {.points = {{1, 1.0}, {64, 1.0}}};
  profile.head = {.points = {{1, 0.5}}};
  profile.experts = {.of = 4, .used = 1, .share = 0.5};
  const CostModel cost(profile, {{0, 2}, {2, 5}}, 64);
  EXPECT_DOUBLE_EQ(cost.stage_seconds(StageId(0), 1, 0), 2.0);
  EXPECT_DOUBLE_EQ(cost.stage_seconds(StageId(0), 2, 0), 2.0 * (0.5 + 0.5 * 1.75));
  EXPECT_DOUBLE_EQ(cost.stage_seconds(StageId(1), 2, 1), 3.0 * (0.5 + 0.5 * 1.75) + 0.5) << "the head has none";
}

TEST(BalancedCuts, AreAsGoodAsTheBestOfAll) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<double> layers(1 + random() % 9);
    for (double& cost : layers) cost = static_cast<double>(random() % 20);
    const double embedding = static_cast<double>(random() % 30), head = static_cast<double>(random() % 60);
    const int32_t n_stages = 1 + static_cast<int32_t>(random() % layers.size());
    std::vector<double> speeds(static_cast<size_t>(n_stages), 1.0);
    if (round % 2 == 1)
      for (double& speed : speeds) speed = 1.0 + static_cast<double>(random() % 8) / 4.0;
    const auto ranges = balanced_cuts(layers, embedding, head, n_stages, {},
                                      round % 2 == 1 ? std::span<const double>(speeds) : std::span<const double>());
    ASSERT_EQ(ranges.size(), static_cast<size_t>(n_stages));
    double dearest = 0;
    int32_t next = 0;
    for (size_t s = 0; s < ranges.size(); ++s) {
      const LayerRange& range = ranges[s];
      ASSERT_EQ(range.first, next);
      ASSERT_GT(range.last, range.first);
      next = range.last;
      double cost = (range.first == 0 ? embedding : 0.0) + (next == static_cast<int32_t>(layers.size()) ? head : 0.0);
      for (int32_t l = range.first; l < range.last; ++l) cost += layers[static_cast<size_t>(l)];
      dearest = std::max(dearest, cost / speeds[s]);
    }
    ASSERT_EQ(next, static_cast<int32_t>(layers.size()));
    ASSERT_DOUBLE_EQ(dearest, cheapest(layers, embedding, head, speeds));
  }
}

TEST(BalancedCuts, KeepWithinWhatFits) {
  const std::vector<double> layers(8, 1.0);
  const auto cuts_with = [&](int32_t first, int32_t second) {
    return balanced_cuts(layers, 0.0, 0.0, 2, [=](StageId stage, LayerRange range) {
      return range.count() <= (stage == StageId(0) ? first : second);
    });
  };
  ASSERT_EQ(cuts_with(3, 8).size(), 2u);
  EXPECT_EQ(cuts_with(3, 8)[0].last, 3);
  EXPECT_EQ(cuts_with(8, 2)[0].last, 6);
  EXPECT_EQ(cuts_with(8, 8)[0].last, 4);
  EXPECT_TRUE(cuts_with(3, 4).empty());
}

TEST(ExplicitCuts, AreTheFirstLayersOfTheFurtherStages) {
  const auto ranges = explicit_cuts({2, 5}, 7);
  ASSERT_TRUE(ranges);
  ASSERT_EQ(ranges->size(), 3u);
  EXPECT_EQ((*ranges)[0].first, 0);
  EXPECT_EQ((*ranges)[0].last, 2);
  EXPECT_EQ((*ranges)[2].first, 5);
  EXPECT_EQ((*ranges)[2].last, 7);
  EXPECT_EQ(explicit_cuts({}, 7)->size(), 1u);
}

TEST(ExplicitCuts, OutOfOrderOrRangeAreErrorsThatNameTheOption) {
  for (const auto& cuts : std::vector<std::vector<int32_t>>{{0}, {-3}, {7}, {8}, {3, 3}, {4, 2}, {1, 2, 7}})
    EXPECT_NE(error_of(cuts, 7).find("--cuts"), std::string::npos);
}

TEST(CostModel, AStageIsAsFastAsItsDevice) {
  Profile profile;
  profile.layer.points = {{1, 1.0}, {2, 3.0}};
  profile.head.points = {{1, 100.0}};
  profile.speeds = {2.0, 0.5};
  EXPECT_DOUBLE_EQ(CostModel(profile, {{0, 2}, {2, 5}}, 64).stage_seconds(StageId(0), 1, 0), 1.0);
  EXPECT_DOUBLE_EQ(CostModel(profile, {{0, 2}, {2, 5}}, 64).stage_seconds(StageId(1), 2, 1), 2 * (9.0 + 100.0));
  profile.stage.points = {{1, 4.0}};
  EXPECT_DOUBLE_EQ(CostModel(profile, {{0, 2}, {2, 5}}, 64).stage_seconds(StageId(0), 1, 0), 2.0);
  EXPECT_DOUBLE_EQ(CostModel(profile, {{0, 2}, {2, 5}}, 64).step_seconds(), 8.0);
}

TEST(CostModel, AStageCostsItsLayersAndTheEndsCostMore) {
  Profile profile;
  profile.layer.points = {{1, 1.0}, {2, 3.0}};
  profile.embedding.points = {{1, 10.0}};
  profile.head.points = {{1, 100.0}};
  const CostModel cost(profile, {{0, 2}, {2, 5}}, 64);
  EXPECT_DOUBLE_EQ(cost.stage_seconds(StageId(0), 1, 0), 2 * 1.0 + 10.0);
  EXPECT_DOUBLE_EQ(cost.stage_seconds(StageId(1), 2, 1), 3 * 3.0 + 100.0);
  EXPECT_DOUBLE_EQ(cost.stage_seconds(StageId(1), 2, 0), 9.0);  // no alive row, no head
  EXPECT_DOUBLE_EQ(cost.stage_seconds(StageId(1), 0, 0), 0.0);
  EXPECT_DOUBLE_EQ(cost.step_seconds(), 3 * 1.0 + 100.0);
}

TEST(CostModel, AWholeStageCostsTheSameWhateverItsLayers) {
  const auto profile = Profile::load("paper-8x");
  ASSERT_TRUE(profile);
  const CostModel cost(*profile, {{0, 1}, {1, 30}}, 64);
  for (const int32_t stage : {0, 1}) {
    EXPECT_DOUBLE_EQ(cost.stage_seconds(StageId(stage), 64, 1), 0.0378);
    EXPECT_DOUBLE_EQ(cost.stage_seconds(StageId(stage), 65, 1), 2 * 0.0378);
  }
  EXPECT_DOUBLE_EQ(cost.step_seconds(), 0.0378);
  EXPECT_DOUBLE_EQ(cost.state_bytes(3), 64 + 3 * 4 * (64 + 8));
  EXPECT_DOUBLE_EQ(cost.batch_bytes(3), 64 + 3 * 32);
  const CostModel halves(*profile, {{0, 1}, {1, 30}}, 64, Activations::kF16);
  EXPECT_DOUBLE_EQ(halves.state_bytes(3), 64 + 3 * (32 + 2 * 64));
  EXPECT_DOUBLE_EQ(halves.tap_bytes(3), cost.state_bytes(3)) << "heads read f32";
}

}  // namespace
}  // namespace sluice

#include "method/level.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace sluice {
namespace {

using Guess = std::pair<std::vector<Token>, double>;  // path, log probability

TEST(AppendLevel, TakesTheLikeliestPathsOfTheWholeLevel) {
  std::mt19937 random(1);
  for (int round = 0; round < 100; ++round) {
    TokenTree tree(0, 0);
    const int32_t width = 1 + static_cast<int32_t>(random() % 20);
    for (int level = 0; level < 4; ++level) {
      std::vector<Guess> all;
      for (const NodeId id : tree.frontier()) {
        std::vector<Candidate> candidates;
        for (Token token = 0; token < static_cast<Token>(random() % 6); ++token)
          candidates.push_back({token, static_cast<float>(1 + random() % 1000) / 6000.0f});
        for (const Candidate& c : candidates) {
          auto path = tree.path(id);
          path.push_back(c.token);
          all.emplace_back(path, tree.node(id).log_path + std::log(c.probability));
        }
        tree.set_candidates(id, std::move(candidates));
      }
      std::stable_sort(all.begin(), all.end(), [](const Guess& a, const Guess& b) { return a.second > b.second; });
      if (all.size() > static_cast<size_t>(width)) all.resize(static_cast<size_t>(width));
      const size_t before = tree.size();
      append_level(tree, width);
      ASSERT_EQ(tree.size(), before + all.size());
      if (all.empty()) break;
      // The worst that was taken is as good as the worst of the brute-force choice, in the same order.
      for (size_t i = 0; i < all.size(); ++i) {
        const auto& node = tree.nodes()[before + i];
        ASSERT_EQ(tree.path(node.id), all[i].first) << "round " << round << " level " << level;
        ASSERT_NEAR(node.log_path, all[i].second, 1e-6);
      }
    }
  }
}

TEST(AppendLevel, LeavesOutWhatIsNotAboveTheFloor) {
  TokenTree tree(0, 5);
  tree.set_candidates(tree.root().id, {{1, 0.5f}, {2, 0.3f}, {3, 0.1f}});
  append_level(tree, 8, std::log(0.2));
  ASSERT_EQ(tree.size(), 3u);
  for (size_t i = 1; i < 3; ++i) tree.set_candidates(tree.nodes()[i].id, {{7, 0.5f}, {8, 0.1f}});
  append_level(tree, 8, std::log(0.2));
  ASSERT_EQ(tree.size(), 4u);
  EXPECT_EQ(tree.path(tree.nodes().back().id), (std::vector<Token>{1, 7}));
}

TEST(AppendLevel, AddsNothingWhereNothingWasSaid) {
  TokenTree tree(0, 0);
  append_level(tree, 4);
  tree.set_candidates(tree.root().id, {});
  append_level(tree, 4);
  EXPECT_EQ(tree.size(), 1u);
}

TEST(Frontier, IsTheDeepestLevel) {
  TokenTree tree(0, 3);
  EXPECT_EQ(tree.frontier(), std::vector{tree.root().id});
  const NodeId a = tree.append(tree.root().id, 1, 0.5f), b = tree.append(tree.root().id, 2, 0.4f);
  EXPECT_EQ(tree.frontier(), (std::vector{a, b}));
  const NodeId c = tree.append(b, 2, 0.4f);
  EXPECT_EQ(tree.frontier(), std::vector{c});
}

TEST(FirstWaitingLevel, IsTheShallowestOfWhichSomethingWaits) {
  Speculation s{.tree = TokenTree(0, 3), .target = {}, .last_position = 100};
  const NodeId root = s.tree.root().id;
  EXPECT_EQ(first_waiting_levels(s, 1), std::vector{root});
  const NodeId a = s.tree.append(root, 1, 0.5f), b = s.tree.append(root, 2, 0.4f), c = s.tree.append(root, 3, 0.1f);
  const NodeId below = s.tree.append(a, 1, 0.5f);
  EXPECT_EQ(first_waiting_levels(s, 1), std::vector{root});
  s.target.enter(root, {Cell(0), BatchId(0), 0});
  EXPECT_EQ(first_waiting_levels(s, 1), (std::vector{a, b, c}));
  s.target.enter(a, {Cell(1), BatchId(1), 0});  // the budget had no room for the others
  EXPECT_EQ(first_waiting_levels(s, 1), (std::vector{b, c}));
  s.target.enter(b, {Cell(2), BatchId(2), 0});
  s.target.enter(c, {Cell(3), BatchId(2), 1});
  EXPECT_EQ(first_waiting_levels(s, 1), std::vector{below});
  s.target.enter(below, {Cell(4), BatchId(3), 0});
  EXPECT_TRUE(first_waiting_levels(s, 1).empty());
}

}  // namespace
}  // namespace sluice

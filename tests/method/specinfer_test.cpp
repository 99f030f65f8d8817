#include <algorithm>
#include <cmath>
#include <map>

#include "method/scripted.h"

namespace sluice {
namespace {

using namespace test;

// How many nodes entered at each level below the root.
std::vector<int32_t> levels(const Scripted& play, const std::vector<NodeId>& entered) {
  std::vector<int32_t> counts;
  for (const NodeId node : entered) {
    const auto depth = static_cast<size_t>(play.tree().node(node).position - play.tree().root().position);
    counts.resize(std::max(counts.size(), depth + 1));
    ++counts[depth];
  }
  return counts;
}

// Lets the source answer until a tree enters: its nodes.
std::vector<NodeId> next_tree(Scripted& play) {
  for (;;) {
    const Proposal proposal = play.propose();
    for (const Ask& ask : proposal.expand) play.answer(ask);
    if (!proposal.enter.empty()) {
      play.enter(proposal.enter);
      return proposal.enter;
    }
    if (proposal.expand.empty()) return {};
  }
}

TEST(SpecInfer, ThePapersTreeBranchesOnceByThree) {
  Scripted play("specinfer", {});  // <1,1,3,1,1,1,1,1>
  EXPECT_EQ(levels(play, next_tree(play)), (std::vector<int32_t>{1, 1, 1, 3, 3, 3, 3, 3, 3}));
}

TEST(SpecInfer, ANodeHasTheChildrenThatTheSourceRanksFirst) {
  const Oracle oracle = random_oracle(5);
  Scripted play("specinfer", {.branching = {2, 3, 1}}, oracle);
  const auto tree = next_tree(play);
  EXPECT_EQ(levels(play, tree), (std::vector<int32_t>{1, 2, 6, 6}));
  for (const NodeId node : tree) {
    if (node == play.tree().root().id) continue;
    const auto parent = play.tree().node(node).parent;
    const auto candidates = oracle(play.text(parent));
    const auto depth = play.tree().node(parent).position - play.tree().root().position;
    const auto children = candidates.begin() + std::vector{2, 3, 1}[static_cast<size_t>(depth)];
    EXPECT_NE(std::find_if(candidates.begin(), children,
                           [&](const Candidate& c) { return c.token == play.tree().node(node).token; }),
              children);
  }
}

TEST(SpecInfer, ATreeEntersOnceAndTheNextOneWaitsForItsVerdict) {
  Scripted play("specinfer", {.branching = {2, 2}});
  EXPECT_EQ(next_tree(play).size(), 7u);
  EXPECT_TRUE(next_tree(play).empty());
}

TEST(SpecInfer, GoesOnBelowTheLeavesWhileTheTreeIsVerified) {
  const Oracle oracle = random_oracle(6);
  Scripted play("specinfer", {.branching = {1, 2}}, oracle);
  next_tree(play);
  play.step();  // as far as it goes meanwhile
  const size_t asked = play.n_asked;
  // The target says what the source put first, to a leaf and one token further.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(play.verdict(oracle(play.committed)[0].token).hit) << i;
  EXPECT_EQ(levels(play, next_tree(play)), (std::vector<int32_t>{1, 1, 2}));
  EXPECT_EQ(play.n_asked, asked) << "the next tree was ready";
}

TEST(SpecInfer, AMissBeginsANewTree) {
  Scripted play("specinfer", {.branching = {1, 2}});
  next_tree(play);
  EXPECT_FALSE(play.verdict(77).hit);
  EXPECT_EQ(levels(play, next_tree(play)), (std::vector<int32_t>{1, 1, 2}));
}

TEST(SpecInfer, NoTreeGoesBeyondTheLastPosition) {
  for (const int32_t nodes : {0, 8}) {
    Scripted play("specinfer", {.depth = 6, .branching = {2, 1, 1}, .tree_nodes = nodes}, random_oracle(2),
                  /*last_position=*/7);
    for (const NodeId node : next_tree(play)) EXPECT_LE(play.tree().node(node).position, 7);
    play.step();
    EXPECT_LE(play.tree().deepest(), 7);
  }
}

TEST(SpecInfer, ASourceThatHasNothingToSayLeavesTheRoot) {
  for (const int32_t nodes : {0, 8}) {
    Scripted play("specinfer", {.tree_nodes = nodes}, [](const Tokens&) { return std::vector<Candidate>(); });
    EXPECT_EQ(next_tree(play).size(), 1u);
    EXPECT_TRUE(next_tree(play).empty());
  }
}

// All paths down to `depth`, the likeliest `count` of them.
std::vector<Tokens> best_paths(const Oracle& oracle, int32_t depth, size_t count) {
  std::vector<std::pair<double, Tokens>> all, level = {{0.0, {}}};
  for (int32_t i = 0; i < depth; ++i) {
    std::vector<std::pair<double, Tokens>> next;
    for (const auto& [log_path, path] : level)
      for (const Candidate& c : oracle(path)) {
        next.emplace_back(log_path + std::log(static_cast<double>(c.probability)), path);
        next.back().second.push_back(c.token);
      }
    all.insert(all.end(), next.begin(), next.end());
    level = std::move(next);
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<Tokens> best;
  for (size_t i = 0; i < count; ++i) best.push_back(all[i].second);
  std::sort(best.begin(), best.end());
  return best;
}

TEST(SpecInfer, WithABudgetItIsTheBestTreeOfThatManyNodes) {
  for (uint64_t seed = 0; seed < 8; ++seed)
    for (const auto& [nodes, depth] : {std::pair{1, 3}, {7, 2}, {12, 5}, {25, 6}}) {
      const Oracle oracle = random_oracle(seed, 3);
      Scripted play("specinfer", {.depth = depth, .tree_nodes = nodes}, oracle);
      std::vector<Tokens> tree;
      for (const NodeId node : next_tree(play))
        if (node != play.tree().root().id) tree.push_back(play.tree().path(node));
      std::sort(tree.begin(), tree.end());
      size_t possible = 0;
      for (int32_t i = 1, width = 3; i <= depth; ++i, width *= 3) possible += static_cast<size_t>(width);
      ASSERT_EQ(tree, best_paths(oracle, depth, std::min(possible, static_cast<size_t>(nodes))))
          << "seed " << seed << ", " << nodes << " nodes of depth " << depth;
    }
}

TEST(SpecInfer, TheBestTreeIsPreparedWhileAnotherIsVerified) {
  // Sure of itself, so that what follows the leaves is among the likeliest.
  const auto oracle = [](const Tokens& text) {
    return std::vector<Candidate>{{static_cast<Token>(text.size()), 0.95f}, {40, 0.04f}};
  };
  Scripted play("specinfer", {.depth = 3, .tree_nodes = 4}, oracle);
  next_tree(play);
  play.step();
  const size_t asked = play.n_asked;
  for (Token token = 0; token < 4; ++token) EXPECT_TRUE(play.verdict(token).hit);
  EXPECT_EQ(next_tree(play).size(), 5u);
  EXPECT_EQ(play.n_asked, asked);
}

// A source that answers at once is asked until there are no more questions: they must come to an end.
TEST(SpecInfer, WhatIsPreparedForTheNextTreeIsNotWithoutLimit) {
  const auto certain = [](const Tokens&) {
    std::vector<Candidate> candidates;
    for (Token token = 0; token < 16; ++token) candidates.push_back({token, token == 0 ? 0.999f : 1e-4f});
    return candidates;
  };
  for (const auto& options : {MethodOptions{.branching = {16, 15}}, MethodOptions{.tree_nodes = 255}}) {
    Scripted play("specinfer", options, certain, /*last_position=*/5000);
    next_tree(play);
    play.step();
    EXPECT_GT(play.tree().size(), 256u);
    EXPECT_LT(play.tree().size(), 20000u);
    EXPECT_LE(play.tree().deepest() - play.tree().root().position, 13);
  }
}

}  // namespace
}  // namespace sluice

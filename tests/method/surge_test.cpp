#include <algorithm>
#include <cmath>
#include <random>

#include "method/scripted.h"

namespace sluice {
namespace {

using namespace test;

// All that waits, node or candidate, above the floor: by looking at everything.
std::vector<Tokens> likeliest_waiting(const Speculation& speculation, size_t count) {
  std::vector<std::pair<double, Tokens>> all;
  const TokenTree& tree = speculation.tree;
  for (const auto& node : tree.nodes()) {
    if (!speculation.target.entered(node.id)) all.emplace_back(node.log_path, tree.path(node.id));
    for (const Candidate& c : node.candidates) {
      if (tree.child(node.id, c.token) || node.position >= speculation.last_position) continue;
      all.emplace_back(node.log_path + std::log(static_cast<double>(c.probability)), tree.path(node.id));
      all.back().second.push_back(c.token);
    }
  }
  std::erase_if(all, [](const auto& guess) { return guess.first <= -9.0; });
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  if (all.size() > count) all.resize(count);
  std::vector<Tokens> paths;
  for (auto& [log_path, path] : all) paths.push_back(std::move(path));
  return paths;
}

// Random sources, random moments of their answers, random verdicts. Scripted sees to it that no child enters before its
// parent.
TEST(Surge, ExactlyTheLikeliestWaitingNodesOfAnyDepthEnter) {
  size_t entered = 0;
  int32_t deepest = 0, levels_at_once = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    const auto width = static_cast<int32_t>(1 + random() % 12), draft_rows = static_cast<int32_t>(1 + random() % 6);
    const Oracle oracle = random_oracle(seed);
    Scripted play("surge", {.width = width, .draft_rows = draft_rows}, oracle);
    std::vector<Ask> under_way;
    for (int turn = 0; turn < 60; ++turn) {
      const bool first_stage = random() % 2, source = random() % 2;
      const auto expected = likeliest_waiting(play.speculation, static_cast<size_t>(width));
      const Proposal proposal = play.propose(first_stage, source ? 1 : 0);
      if (first_stage) {
        std::vector<Tokens> paths;
        int32_t low = 1 << 20, high = 0;
        for (const NodeId node : proposal.enter) {
          paths.push_back(play.tree().path(node));
          low = std::min(low, play.tree().node(node).position);
          high = std::max(high, play.tree().node(node).position);
        }
        ASSERT_EQ(paths, expected) << "seed " << seed << ", turn " << turn;
        play.enter(proposal.enter);
        entered += paths.size();
        deepest = std::max(deepest, high - play.tree().root().position);
        levels_at_once = std::max(levels_at_once, high - low);
      } else {
        ASSERT_TRUE(proposal.enter.empty());
      }
      ASSERT_EQ(proposal.expand.empty(), !source || proposal.expand.empty());
      ASSERT_LE(proposal.expand.size(), static_cast<size_t>(draft_rows));
      if (source) under_way = proposal.expand;
      for (const Ask& ask : under_way)
        if (play.tree().contains(ask.node) && !play.tree().node(ask.node).drafted && random() % 2) play.answer(ask);
      if (random() % 4 == 0 && play.speculation.target.entered(play.tree().root().id)) {
        const auto candidates = oracle(play.committed);
        play.verdict(candidates[random() % 2 == 0 ? 0 : random() % 4].token);
      }
    }
  }
  EXPECT_GT(entered, 5000u);
  EXPECT_GT(deepest, 6);
  EXPECT_GT(levels_at_once, 2);
}

TEST(Surge, TheSourceIsAskedForTheLikeliestNodesItHasNotSeen) {
  Scripted play("surge", {.width = 1, .draft_rows = 2});
  Proposal proposal = play.propose(false);
  ASSERT_EQ(proposal.expand, std::vector{Ask{play.tree().root().id}});
  play.answer(proposal.expand[0], {{1, 0.5f}, {2, 0.3f}, {3, 0.1f}});
  proposal = play.propose(false);
  ASSERT_EQ(proposal.expand.size(), 2u);
  EXPECT_EQ(play.tree().path(proposal.expand[0].node), Tokens{1});
  EXPECT_EQ(play.tree().path(proposal.expand[1].node), Tokens{2});
  play.answer(proposal.expand[0], {{4, 0.9f}});
  proposal = play.propose(false);  // 1 4 has .45, 2 has .3
  ASSERT_EQ(proposal.expand.size(), 2u);
  EXPECT_EQ(play.tree().path(proposal.expand[0].node), (Tokens{1, 4}));
  EXPECT_EQ(play.tree().path(proposal.expand[1].node), Tokens{2});
}

// The level rule of width 1 has cut off the second choice for good; here it enters when the first turns out a dead end.
TEST(Surge, RescuesABranchThatALevelRuleHasCutOff) {
  const Oracle oracle = [](const Tokens& text) -> std::vector<Candidate> {
    if (text.empty()) return {{1, 0.5f}, {2, 0.4f}};
    return {{3, 0.2f}, {4, 0.1f}};
  };
  Scripted by_level("specpipe", {.width = 1}, oracle), play("surge", {.width = 1, .draft_rows = 1}, oracle);
  std::vector<Tokens> entered;
  for (int i = 0; i < 3; ++i) {
    by_level.step();
    play.step();
  }
  EXPECT_FALSE(by_level.tree().child(by_level.tree().root().id, 2));
  const auto rescued = play.tree().child(play.tree().root().id, 2);
  ASSERT_TRUE(rescued);
  EXPECT_TRUE(play.speculation.target.entered(*rescued));
  EXPECT_FALSE(by_level.verdict(2).hit);
  EXPECT_TRUE(play.verdict(2).hit);
}

TEST(Surge, WhatIsTooUnlikelyIsWorthNoRow) {
  const Oracle oracle = [](const Tokens&) -> std::vector<Candidate> { return {{1, 2e-4f}, {2, 1e-4f}}; };
  Scripted play("surge", {.width = 8, .draft_rows = 8}, oracle);
  EXPECT_EQ(play.step(), Tokens{9});
  EXPECT_EQ(play.step(), Tokens{1});  // log .0002 = -8.5, log .0001 = -9.2
  EXPECT_EQ(play.step(), Tokens{});
  EXPECT_EQ(play.tree().size(), 2u);
}

TEST(Surge, ProposesNoMoreAndNothingLessLikelyThanCanEnter) {
  const Oracle oracle = [](const Tokens&) -> std::vector<Candidate> {
    return {{1, 0.3f}, {2, 0.25f}, {3, 0.2f}, {4, 0.1f}, {5, 0.08f}, {6, 0.05f}};
  };
  const auto rows_that_enter = [&](size_t rows, double least) {
    Scripted play("surge", {.width = 6, .draft_rows = 1}, oracle);
    play.answer({play.tree().root().id});
    return play.propose({.first_stage = true, .rows = rows, .floor = std::log(least)}).enter.size();
  };
  EXPECT_EQ(rows_that_enter(100, 0.0), 6u);
  EXPECT_EQ(rows_that_enter(3, 0.0), 3u);
  EXPECT_EQ(rows_that_enter(100, 0.15), 4u);  // the root, .3, .25, .2
}

TEST(Surge, WhereNothingElseEntersTheLikeliestDoesThatPaysNoRow) {
  const Oracle oracle = [](const Tokens&) -> std::vector<Candidate> { return {{1, 0.3f}, {2, 0.25f}}; };
  const auto entering = [&](bool first_is_free) {
    Scripted play("surge", {.width = 6, .draft_rows = 1}, oracle);
    const NodeId root = play.tree().root().id;
    play.speculation.target.enter(root, {.cell = Cell(0), .batch = BatchId(0)});
    play.answer({root});
    std::vector<Token> tokens;
    const Floor floor(std::log(0.5));
    for (const NodeId id : play.propose({.first_stage = true, .floor = floor, .first_is_free = first_is_free}).enter)
      tokens.push_back(play.tree().node(id).token);
    return tokens;
  };
  EXPECT_EQ(entering(false), Tokens{});
  EXPECT_EQ(entering(true), Tokens{1});
}

TEST(Surge, NothingGoesBeyondTheLastPosition) {
  Scripted play("surge", {.width = 8, .draft_rows = 8}, random_oracle(4), /*last_position=*/7);
  for (int i = 0; i < 6; ++i) play.step();
  EXPECT_EQ(play.tree().deepest(), 7);
  EXPECT_TRUE(play.propose().expand.empty());
}

}  // namespace
}  // namespace sluice

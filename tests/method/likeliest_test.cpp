#include "method/likeliest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "method/chain.h"
#include "method/scripted.h"

namespace sluice {
namespace {

using test::Tokens;

struct Guess {
  double log_path;
  Tokens path;
};

// Everything that could be chosen, the likeliest first.
std::vector<Guess> all_guesses(const TokenTree& tree, const std::function<bool(const TokenTree::Node&)>& wanted,
                               double floor, int32_t last_position) {
  std::vector<Guess> all;
  for (const auto& node : tree.nodes()) {
    if (wanted(node)) all.push_back({node.log_path, tree.path(node.id)});
    for (const Candidate& c : node.candidates) {
      if (tree.child(node.id, c.token) || node.position >= last_position) continue;
      Tokens path = tree.path(node.id);
      path.push_back(c.token);
      all.push_back({node.log_path + std::log(static_cast<double>(c.probability)), path});
    }
  }
  std::erase_if(all, [&](const Guess& guess) { return guess.log_path <= floor; });
  std::stable_sort(all.begin(), all.end(), [](const Guess& a, const Guess& b) { return a.log_path > b.log_path; });
  return all;
}

std::vector<Tokens> paths(const TokenTree& tree, const std::vector<NodeId>& nodes) {
  std::vector<Tokens> all;
  for (const NodeId node : nodes) all.push_back(tree.path(node));
  return all;
}

TEST(Likeliest, IsWhatLookingAtEverythingFinds) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    TokenTree tree(0, 10);
    for (int i = 0; i < 30; ++i) {  // a random tree, some of whose candidates are nodes
      const NodeId at = tree.nodes()[random() % tree.size()].id;
      if (tree.node(at).drafted) continue;
      std::vector<Candidate> candidates;
      float left = 0.99f;
      for (Token token = 0; token < static_cast<Token>(random() % 6); ++token) {
        const float p = left * (0.1f + 0.8f * static_cast<float>(random() % 1000) / 1000.0f);
        candidates.push_back({token, p});
        left -= p;
      }
      std::sort(candidates.begin(), candidates.end(),
                [](const Candidate& a, const Candidate& b) { return a.probability > b.probability; });
      for (const Candidate& c : candidates)
        if (random() % 2) tree.append(at, c.token, c.probability);
      tree.set_candidates(at, candidates);
    }
    const auto wanted = [](const TokenTree::Node& n) { return n.id.value % 3 != 0; };
    const size_t count = random() % 20;
    const double floor = -0.5 * static_cast<double>(random() % 20) - 0.1;
    const int32_t last_position = 10 + static_cast<int32_t>(random() % 8);
    auto expected = all_guesses(tree, wanted, floor, last_position);
    if (expected.size() > count) expected.resize(count);
    const size_t before = tree.size();
    const auto chosen = likeliest(tree, wanted, count, floor, last_position);
    ASSERT_EQ(chosen.size(), expected.size()) << "round " << round;
    for (size_t i = 0; i < chosen.size(); ++i) {
      ASSERT_NEAR(tree.node(chosen[i]).log_path, expected[i].log_path, 1e-5) << "round " << round << ", place " << i;
      ASSERT_EQ(tree.path(chosen[i]), expected[i].path) << "round " << round << ", place " << i;
    }
    for (size_t i = before; i < tree.size(); ++i)
      ASSERT_NE(std::find(chosen.begin(), chosen.end(), tree.nodes()[i].id), chosen.end()) << "a node nobody asked for";
  }
}

TEST(Likeliest, OfEqualsParentsComeFirst) {
  TokenTree tree(0, 0);  // everything is certain
  const NodeId a = tree.append(tree.root().id, 1, 1.0f), b = tree.append(a, 2, 1.0f);
  tree.set_candidates(b, {{3, 1.0f}});
  for (size_t count = 1; count <= 4; ++count) {
    TokenTree copy = tree;
    const auto chosen = likeliest(
        copy, [](const auto&) { return true; }, count, -9.0, 100);
    ASSERT_EQ(chosen.size(), count);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(copy.node(chosen[i]).position, static_cast<int32_t>(i));
  }
}

TEST(Likeliest, ChoosesNothingForNobodyAndNothingAtTheFloor) {
  TokenTree tree(0, 0);
  tree.set_candidates(tree.root().id, {{1, 0.5f}});
  EXPECT_TRUE(likeliest(
                  tree, [](const auto&) { return true; }, 0, -9.0, 100)
                  .empty());
  EXPECT_TRUE(likeliest(
                  tree, [](const auto&) { return false; }, 9, std::log(0.5), 100)
                  .empty());
  EXPECT_TRUE(likeliest(
                  tree, [](const auto&) { return false; }, 9, -9.0, 0)
                  .empty());  // beyond the last position
  EXPECT_EQ(tree.size(), 1u);
  EXPECT_EQ(paths(tree, likeliest(
                            tree, [](const auto&) { return false; }, 9, std::log(0.49), 100)),
            std::vector<Tokens>{{1}});
}

TEST(GrowChain, FollowsFirstChoicesUntilTheSourceHasNotSpoken) {
  TokenTree tree(0, 5);
  const NodeId root = tree.root().id;
  Chain chain = grow_chain(tree, root, 3, 100);
  EXPECT_EQ(chain.nodes, std::vector{root});
  EXPECT_TRUE(chain.undrafted);
  tree.set_candidates(root, {{4, 0.6f}, {5, 0.4f}});
  chain = grow_chain(tree, root, 3, 100);
  ASSERT_EQ(chain.nodes.size(), 2u);
  EXPECT_EQ(tree.node(chain.nodes[1]).token, 4);
  EXPECT_TRUE(chain.undrafted);
  const auto again = grow_chain(tree, root, 3, 100);
  EXPECT_EQ(again.nodes, chain.nodes) << "what is a node stays one";
  EXPECT_EQ(tree.size(), 2u);
}

TEST(GrowChain, EndsAtItsLengthTheLastPositionOrSilence) {
  const auto drafted = [] {
    TokenTree tree(0, 5);
    NodeId at = tree.root().id;
    for (int i = 0; i < 6; ++i) {
      tree.set_candidates(at, {{1, 0.5f}});
      at = tree.append(at, 1, 0.5f);
    }
    tree.set_candidates(at, {});
    return tree;
  };
  TokenTree tree = drafted();
  const Chain of_length = grow_chain(tree, tree.root().id, 3, 100);
  EXPECT_EQ(of_length.nodes.size(), 4u);
  EXPECT_FALSE(of_length.undrafted);
  const Chain to_position = grow_chain(tree, tree.root().id, 30, 7);
  EXPECT_EQ(to_position.nodes.size(), 3u);
  EXPECT_FALSE(to_position.undrafted);
  const Chain to_silence = grow_chain(tree, tree.root().id, 30, 100);
  EXPECT_EQ(to_silence.nodes.size(), 7u);
  EXPECT_FALSE(to_silence.undrafted);
  const Chain to_doubt = grow_chain(tree, tree.root().id, 30, 100, 0.2);
  EXPECT_EQ(to_doubt.nodes.size(), 4u) << "one behind 1, 0.5 and 0.25 each";
  EXPECT_FALSE(to_doubt.undrafted);
}

TEST(GrowChain, AsksTheDraftWhereAForetoldTokenIsNotLikelyEnough) {
  TokenTree tree(0, 5);
  const NodeId root = tree.root().id;
  tree.foretell(root, {{4, 0.05f}});
  Chain chain = grow_chain(tree, root, 3, 100);
  EXPECT_EQ(chain.nodes, std::vector{root});
  EXPECT_TRUE(chain.undrafted);
  chain = grow_chain(tree, root, 0, 100);
  EXPECT_FALSE(chain.undrafted) << "no drafts are left";
  tree.set_candidates(root, {{7, 0.9f}, {4, 0.05f}});
  chain = grow_chain(tree, root, 1, 100);
  ASSERT_EQ(chain.nodes.size(), 2u);
  EXPECT_EQ(tree.node(chain.nodes[1]).token, 7);
}

// Foretells the same token at every node of a chain.
Chain foretold_chain(TokenTree& tree, int32_t length, float probability, int32_t last_position) {
  for (;;) {
    const Chain chain = grow_chain(tree, tree.root().id, length, last_position);
    const NodeId tip = chain.nodes.back();
    if (!tree.node(tip).candidates.empty() || tree.node(tip).position >= last_position) return chain;
    tree.foretell(tip, {{4, probability}});
  }
}

TEST(GrowChain, WaitsForNoDraftBehindEnoughForetoldTokens) {
  TokenTree tree(0, 5);
  const Chain few = foretold_chain(tree, 9, 0.5f, 100);  // e^-2.5: three halves, not four
  EXPECT_EQ(few.nodes.size(), 4u);
  EXPECT_TRUE(few.undrafted);
  EXPECT_FALSE(grow_chain(tree, tree.root().id, 3, 100).undrafted);
}

TEST(GrowChain, WaitsForNoDraftBehindAnUnlikelyPath) {
  TokenTree tree(0, 5);
  const NodeId root = tree.root().id;
  tree.set_candidates(root, {{4, 0.4f}});
  for (const auto& [p_min, waits] : {std::pair{0.0, true}, {0.3, true}, {0.5, false}, {1.0, false}}) {
    const Chain chain = grow_chain(tree, root, 3, 100, p_min);
    EXPECT_EQ(chain.nodes.size(), 2u) << p_min;
    EXPECT_EQ(chain.undrafted, waits) << p_min;
  }
  TokenTree silent(0, 5);
  EXPECT_TRUE(grow_chain(silent, silent.root().id, 3, 100, 1.0).undrafted) << "nothing has been said yet";
}

}  // namespace
}  // namespace sluice

#include "tree/token_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "support/broken.h"

namespace sluice {
namespace {

// root 10 at position 4; children 11 (.5) and 12 (.25); 11 has 13 (.5) and 14 (.125), 12 has 13 (1).
struct Example {
  TokenTree tree{10, 4};
  NodeId a = tree.append(tree.root().id, 11, 0.5f), b = tree.append(tree.root().id, 12, 0.25f);
  NodeId aa = tree.append(a, 13, 0.5f), ab = tree.append(a, 14, 0.125f), ba = tree.append(b, 13, 1.0f);
};

std::vector<NodeId> ids(const TokenTree& tree) {
  std::vector<NodeId> all;
  for (const auto& node : tree.nodes()) all.push_back(node.id);
  return all;
}

TEST(TokenTree, BeginsAsItsRootAlone) {
  const TokenTree tree(10, 4);
  EXPECT_EQ(tree.size(), 1u);
  EXPECT_EQ(tree.root().token, 10);
  EXPECT_EQ(tree.root().position, 4);
  EXPECT_FALSE(tree.root().parent.valid());
  EXPECT_EQ(tree.root().log_path, 0.0);
  EXPECT_EQ(tree.deepest(), 4);
  EXPECT_TRUE(tree.path(tree.root().id).empty());
}

TEST(TokenTree, ANodeFollowsItsParentInPositionAndProbability) {
  const Example e;
  EXPECT_EQ(e.tree.node(e.ab).position, 6);
  EXPECT_EQ(e.tree.node(e.ab).parent, e.a);
  EXPECT_NEAR(e.tree.node(e.ab).log_path, std::log(0.5) + std::log(0.125), 1e-6);
  EXPECT_EQ(e.tree.path(e.ab), (std::vector<Token>{11, 14}));
  EXPECT_EQ(e.tree.child(e.a, 14), e.ab);
  EXPECT_EQ(e.tree.child(e.b, 14), std::nullopt);
  EXPECT_EQ(e.tree.deepest(), 6);
  EXPECT_TRUE(std::isfinite(TokenTree(e.tree).node(e.a).log_path));
}

TEST(TokenTree, AnImpossibleGuessStillHasAFinitePath) {
  TokenTree tree(1, 0);
  const NodeId never = tree.append(tree.root().id, 2, 0.0f);
  EXPECT_TRUE(std::isfinite(tree.node(never).log_path));
}

TEST(TokenTree, AHitReRootsAndKeepsTheSubtreeOfTheNewRoot) {
  Example e;
  const auto advance = e.tree.advance(11);
  EXPECT_TRUE(advance.hit);
  EXPECT_EQ(advance.pruned, (std::vector<NodeId>{e.b, e.ba}));
  EXPECT_EQ(ids(e.tree), (std::vector<NodeId>{e.a, e.aa, e.ab}));
  EXPECT_EQ(e.tree.root().id, e.a);
  EXPECT_FALSE(e.tree.root().parent.valid());
  EXPECT_EQ(e.tree.root().log_path, 0.0);
  EXPECT_NEAR(e.tree.node(e.ab).log_path, std::log(0.125), 1e-6);
  EXPECT_EQ(e.tree.path(e.ab), (std::vector<Token>{14}));
}

TEST(TokenTree, RenewedItHoldsTheRootsTokenAloneInANodeOfItsOwn) {
  Example e;
  const uint64_t text = e.tree.root().text;
  const NodeId old = e.tree.root().id;
  EXPECT_EQ(e.tree.renew(), (std::vector<NodeId>{old, e.a, e.b, e.aa, e.ab, e.ba}));
  EXPECT_EQ(e.tree.size(), 1u);
  EXPECT_EQ(e.tree.root().token, 10);
  EXPECT_EQ(e.tree.root().position, 4);
  EXPECT_EQ(e.tree.root().text, text);
  EXPECT_EQ(e.tree.deepest(), 4);
  EXPECT_GT(e.tree.root().id, e.ba);  // never given out before
  EXPECT_FALSE(e.tree.contains(old));
  EXPECT_TRUE(e.tree.advance(e.tree.node(e.tree.append(e.tree.root().id, 11, 0.5f)).token).hit);
}

TEST(TokenTree, AMissLeavesANewRootAloneAndPrunesAllElse) {
  Example e;
  const auto advance = e.tree.advance(99);
  EXPECT_FALSE(advance.hit);
  EXPECT_EQ(advance.pruned, (std::vector<NodeId>{e.a, e.b, e.aa, e.ab, e.ba}));
  EXPECT_EQ(e.tree.size(), 1u);
  EXPECT_EQ(e.tree.root().token, 99);
  EXPECT_EQ(e.tree.root().position, 5);
  EXPECT_GT(e.tree.root().id, e.ba);  // never given out before
}

TEST(TokenTree, KeepsAtMostSixtyFourCandidates) {
  Example e;
  EXPECT_FALSE(e.tree.node(e.a).drafted);
  std::vector<Candidate> many;
  for (Token t = 0; t < 100; ++t) many.push_back({t, 0.01f});
  e.tree.set_candidates(e.a, many);
  EXPECT_TRUE(e.tree.node(e.a).drafted);
  ASSERT_EQ(e.tree.node(e.a).candidates.size(), TokenTree::kMaxCandidates);
  EXPECT_EQ(e.tree.node(e.a).candidates.back().token, 63);
  e.tree.set_candidates(e.b, {});
  EXPECT_TRUE(e.tree.node(e.b).drafted);  // asked, with nothing to say
}

TEST(TokenTree, WhatIsForetoldGivesWayToWhatIsKnown) {
  Example e;
  const Token child = e.tree.node(e.ab).token;
  e.tree.foretell(e.a, {{child, 0.9f}, {77, 0.05f}});
  EXPECT_FALSE(e.tree.node(e.a).drafted);
  EXPECT_TRUE(e.tree.node(e.a).foretold);
  EXPECT_EQ(e.tree.node(e.a).grown, 1u) << "it is a node already";
  e.tree.set_candidates(e.a, {{78, 0.5f}, {child, 0.4f}});
  EXPECT_TRUE(e.tree.node(e.a).drafted);
  EXPECT_EQ(e.tree.node(e.a).candidates[0].token, 78);
  EXPECT_EQ(e.tree.node(e.a).grown, 2u);
}

TEST(TokenTree, ANodeHasOneChildAToken) {
  Example e;
  EXPECT_BROKEN(e.tree.append(e.a, 13, 0.1f), "one child a token");
  EXPECT_BROKEN(e.tree.node(NodeId(77)), "no such node");
}

// The same tree kept as whole paths, against which everything is checked by brute force.
struct Paths {
  std::map<NodeId, std::vector<std::pair<Token, float>>> nodes;  // from the root's child down
};

TEST(TokenTree, AgreesWithBruteForceOnRandomTrees) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    TokenTree tree(0, 7);
    Paths brute{{{tree.root().id, {}}}};
    std::set<NodeId> ever{tree.root().id};
    int32_t position = 7;
    for (int step = 0; step < 60; ++step) {
      if (random() % 8 != 0) {
        auto parent = brute.nodes.begin();
        std::advance(parent, random() % brute.nodes.size());
        const Token token = static_cast<Token>(random() % 5);
        auto path = parent->second;
        path.emplace_back(token, static_cast<float>(1 + random() % 99) / 100.0f);
        if (tree.child(parent->first, token)) continue;
        const NodeId id = tree.append(parent->first, token, path.back().second);
        ASSERT_TRUE(ever.insert(id).second) << "an id was given out twice";
        brute.nodes.emplace(id, std::move(path));
      } else {
        const Token token = static_cast<Token>(random() % 5);
        const auto advance = tree.advance(token);
        ++position;
        Paths kept;
        std::vector<NodeId> pruned;
        for (auto& [id, path] : brute.nodes) {
          if (path.empty()) continue;
          if (path.front().first == token) {
            kept.nodes.emplace(id, std::vector(path.begin() + 1, path.end()));
          } else {
            pruned.push_back(id);
          }
        }
        ASSERT_EQ(advance.hit, !kept.nodes.empty());
        ASSERT_EQ(advance.pruned, pruned);
        if (!advance.hit) {
          ASSERT_TRUE(ever.insert(tree.root().id).second) << "an id was given out twice";
          kept.nodes.emplace(tree.root().id, std::vector<std::pair<Token, float>>{});
        }
        ASSERT_EQ(tree.root().token, token);
        brute = std::move(kept);
      }
      ASSERT_EQ(tree.size(), brute.nodes.size());
      std::vector<NodeId> deepest;
      for (const auto& node : tree.nodes())
        if (node.position == tree.deepest()) deepest.push_back(node.id);
      ASSERT_EQ(tree.frontier(), deepest);
      size_t i = 0;
      for (const auto& [id, path] : brute.nodes) {  // by id, as nodes() are
        const auto& node = tree.nodes()[i];
        ASSERT_EQ(node.id, id);
        ASSERT_EQ(node.position, position + static_cast<int32_t>(path.size()));
        double log_path = 0;
        std::vector<Token> tokens;
        for (const auto& [token, probability] : path) {
          log_path += std::log(probability);
          tokens.push_back(token);
        }
        ASSERT_NEAR(node.log_path, log_path, 1e-9);
        ASSERT_EQ(tree.path(id), tokens);
        std::vector<NodeId> children;
        for (const auto& below : tree.nodes())
          if (below.parent == id) children.push_back(below.id);
        ASSERT_EQ(tree.children(id), children);
        ++i;
      }
    }
  }
}

TEST(TokenTree, WhatWasDrawnForANodeStays) {
  TokenTree tree(9, 5);
  const auto draws = std::make_shared<Draws>(Draws{.q = {{3, 0.5f}, {4, 0.5f}}, .tokens = {4}});
  tree.set_candidates(tree.root().id, {{4, 0.5f}, {3, 0.5f}}, draws);
  tree.set_candidates(tree.root().id, {{3, 0.9f}});
  tree.set_candidates(tree.root().id, {{3, 0.9f}}, std::make_shared<Draws>());
  EXPECT_EQ(tree.root().draws, draws);
  EXPECT_EQ(tree.root().candidates.front().token, 4);
}

TEST(TokenTree, TheHashOfATextIsThatOfItsTokensWhetherTheTreeHeldThemOrNot) {
  TokenTree grown(9, 5), missed(9, 5);
  const NodeId a = grown.append(grown.root().id, 1, 0.5f), b = grown.append(grown.root().id, 2, 0.5f);
  const NodeId c = grown.append(a, 2, 0.5f), d = grown.append(b, 1, 0.5f);
  const uint64_t text = grown.node(c).text;
  EXPECT_NE(text, grown.node(d).text);
  grown.advance(1);
  grown.advance(2);
  missed.advance(1);
  missed.advance(2);
  EXPECT_EQ(grown.root().text, text);
  EXPECT_EQ(missed.root().text, text);
}

}  // namespace
}  // namespace sluice

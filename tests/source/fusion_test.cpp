#include "source/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace sluice {
namespace {

std::vector<Candidate> random_candidates(std::mt19937& random, size_t n) {
  std::vector<Token> tokens(30);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(i);
  std::shuffle(tokens.begin(), tokens.end(), random);
  std::vector<Candidate> candidates;
  float left = 1.0f;
  for (size_t i = 0; i < n; ++i) {
    const float p = left * static_cast<float>(random() % 1000) / 1000.0f;
    candidates.push_back({tokens[i], p});
    left -= p;
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.probability > b.probability; });
  return candidates;
}

TEST(Fusion, NamesEachTokenOnceTheLikeliestFirst) {
  std::mt19937 random(1);
  Fusion fusion;
  for (int round = 0; round < 200; ++round) {
    const auto model = random_candidates(random, random() % 16), text = random_candidates(random, random() % 16);
    std::set<Token> expected, tokens;
    for (const auto& said : {model, text})
      for (const Candidate& c : said) expected.insert(c.token);
    const auto fused = fusion.fuse(NodeId(round), model, text);
    double sum = 0.0;
    for (size_t i = 0; i < fused.size(); ++i) {
      tokens.insert(fused[i].token);
      sum += fused[i].probability;
      if (i > 0) {
        ASSERT_LE(fused[i].probability, fused[i - 1].probability);
      }
    }
    EXPECT_EQ(tokens, expected);
    EXPECT_EQ(fused.size(), expected.size());
    EXPECT_LE(sum, 1.0 + 1e-5);
    if (!fused.empty()) fusion.learn(NodeId(round), static_cast<Token>(random() % 30));
  }
}

TEST(Fusion, ASilentSourceLeavesTheOthersRanking) {
  Fusion fusion;
  EXPECT_TRUE(fusion.fuse(NodeId(0), {}, {}).empty());
  EXPECT_EQ(fusion.fuse(NodeId(1), {{3, 0.5f}, {4, 0.2f}}, {}).at(0).token, 3);
  EXPECT_EQ(fusion.fuse(NodeId(2), {}, {{3, 0.5f}, {4, 0.2f}}).at(0).token, 3);
}

// A model that says .9 and is right in six cases of ten, a text that says .6 and is right whenever it speaks.
TEST(Fusion, ProbabilitiesComeToSayHowOftenTheyAreRight) {
  std::mt19937 random(2);
  Fusion fusion;
  double alone = 0.0, backed = 0.0;
  int n_alone = 0, n_backed = 0;
  for (int32_t round = 0; round < 6000; ++round) {
    const bool text_speaks = random() % 3 == 0;
    const Token truth = text_speaks || random() % 10 < 6 ? 1 : 2;
    const auto fused = fusion.fuse(NodeId(round), {{1, 0.9f}, {2, 0.05f}},
                                   text_speaks ? std::vector<Candidate>{{1, 0.6f}} : std::vector<Candidate>{});
    const auto first =
        std::find_if(fused.begin(), fused.end(), [](const Candidate& c) { return c.token == 1; })->probability;
    if (round > 3000) (text_speaks ? backed : alone) += first, ++(text_speaks ? n_backed : n_alone);
    fusion.learn(NodeId(round), truth);
  }
  EXPECT_NEAR(alone / n_alone, 0.6, 0.06);
  EXPECT_GT(backed / n_backed, 0.95);
}

TEST(Fusion, LearnsNothingFromNodesThatAreGone) {
  Fusion fusion;
  const std::vector<Candidate> model = {{1, 0.7f}, {2, 0.2f}};
  const auto before = fusion.fuse(NodeId(1), model, {});
  const std::vector<NodeId> gone = {NodeId(1)};
  fusion.forget(gone);
  for (int i = 0; i < 50; ++i) fusion.learn(NodeId(1), 2);
  EXPECT_EQ(fusion.fuse(NodeId(2), model, {}).at(0).probability, before.at(0).probability);
}

}  // namespace
}  // namespace sluice

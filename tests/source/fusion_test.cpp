#include "source/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "source/policy.h"

namespace sluice {
namespace {

using Candidates = std::vector<Candidate>;
using Said = std::vector<Candidates>;

Candidates random_candidates(std::mt19937& random, size_t n) {
  std::vector<Token> tokens(30);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(i);
  std::shuffle(tokens.begin(), tokens.end(), random);
  Candidates candidates;
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
  for (int round = 0; round < 300; ++round) {
    Said said;
    for (int i = 0; i < 3; ++i) said.push_back(random_candidates(random, random() % 16));
    std::set<Token> expected, tokens;
    bool main = true;  // the first that speaks; of the others counts what they hold likely
    for (const auto& source : said) {
      for (const Candidate& c : source)
        if (main || c.probability > policy::kLeastMentioned) expected.insert(c.token);
      main = main && source.empty();
    }
    const auto fused = fusion.fuse(NodeId(round), said);
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

// Whoever is silent, the one that speaks is given back as it is, in its order, equal probabilities included.
TEST(Fusion, WhatOneSourceSaysAloneIsUnchanged) {
  const Candidates alone = {{3, 0.9f}, {7, 0.04f}, {5, 0.03f}, {6, 0.03f}, {4, 1e-7f}, {2, 0.0f}};
  const Candidates unsure = {{9, 0.04f}, {8, 0.03f}};
  Fusion fusion;
  EXPECT_TRUE(fusion.fuse(NodeId(0), Said{{}, {}, {}}).empty());
  const std::vector<Said> all = {{alone, {}, {}}, {{}, alone, {}}, {{}, {}, alone}, {alone, unsure, unsure}};
  for (size_t i = 0; i < all.size(); ++i) {
    const auto fused = fusion.fuse(NodeId(1), all[i]);
    ASSERT_EQ(fused.size(), alone.size()) << i;
    for (size_t k = 0; k < alone.size(); ++k) {
      EXPECT_EQ(fused[k].token, alone[k].token) << i;
      EXPECT_NEAR(fused[k].probability, alone[k].probability, 1e-6f) << i;
    }
  }
}

TEST(Fusion, AnUntriedSourceDoesNotOverruleAMainSourceThatKnows) {
  Fusion fusion;
  const auto fused = fusion.fuse(NodeId(0), Said{{{1, 0.8f}, {2, 0.1f}}, {{2, 0.99f}}, {{3, 0.99f}}});
  EXPECT_EQ(fused[0].token, 1);
  EXPECT_EQ(fused[1].token, 2);
  EXPECT_GT(fused[1].probability, 0.1f) << "but it counts";
}

// A stream of tokens, of which a main source and a text say something each.
struct Stream {
  // Whether the source's first candidate is the truth: in the tests' streams with the probability that it says, or not.
  double draft_right = 0.7, draft_says = 0.7;
  double text_speaks = 1.0, text_right = 0.8, text_says = 0.8;
};

// Mean cost in nats of the tokens from `begin` up to `end`; what nobody mentioned costs as if it had had 1e-4.
struct Costs {
  double fused = 0.0, draft = 0.0, text = 0.0;
};
Costs costs(const Stream& stream, int begin, int end, uint32_t seed) {
  std::mt19937 random(seed);
  const auto happens = [&](double p) { return static_cast<double>(random() % 100000) < p * 100000; };
  // The truth or another token first, and behind it one more.
  const auto says = [&](bool right, double p, Token truth) {
    const auto other = static_cast<Token>(1000 + random() % 1000);
    return Candidates{{right ? truth : other, static_cast<float>(p)},
                      {right ? other : truth, static_cast<float>((1.0 - p) * 0.9)}};
  };
  const auto cost = [](const Candidates& candidates, Token truth) {
    double p = 1e-4;
    for (const Candidate& c : candidates)
      if (c.token == truth) p = std::max(p, static_cast<double>(c.probability));
    return -std::log(p);
  };
  Fusion fusion;
  Costs sum;
  for (int i = 0; i < end; ++i) {
    const auto truth = static_cast<Token>(random() % 1000);
    const Candidates draft = says(happens(stream.draft_right), stream.draft_says, truth);
    const Candidates text =
        happens(stream.text_speaks) ? says(happens(stream.text_right), stream.text_says, truth) : Candidates{};
    const auto fused = fusion.fuse(NodeId(i), Said{draft, text});
    if (i >= begin) {
      sum.fused += cost(fused, truth);
      sum.draft += cost(draft, truth);
      sum.text += cost(text, truth);
    }
    fusion.learn(NodeId(i), truth);
  }
  const double n = end - begin;
  return {sum.fused / n, sum.draft / n, sum.text / n};
}

Costs mean_costs(const Stream& stream, int begin, int end) {
  constexpr int kSeeds = 20;
  Costs mean;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) {
    const Costs one = costs(stream, begin, end, seed);
    mean.fused += one.fused / kSeeds, mean.draft += one.draft / kSeeds, mean.text += one.text / kSeeds;
  }
  return mean;
}

const std::vector<Stream> kStreams = {
    {},                                                            // both say how often they are right
    {.text_right = 1.0, .text_says = 0.6},                         // the text knows better than it says
    {.text_right = 0.1, .text_says = 0.95},                        // it is sure, and wrong
    {.text_speaks = 0.0},                                          // it is silent
    {.text_speaks = 0.2, .text_right = 0.95, .text_says = 0.95},   // it speaks seldom, and is right
    {.draft_right = 0.1, .draft_says = 0.9, .text_right = 0.9},    // the draft is sure, and wrong
    {.draft_right = 0.97, .draft_says = 0.97, .text_right = 0.3},  // a good draft beside a bad text
    {.draft_right = 0.6, .draft_says = 0.95, .text_speaks = 0.3},  // a draft that is too sure of itself
};

TEST(Fusion, AfterTwoHundredTokensItCodesAsTheBetterSource) {
  for (size_t i = 0; i < kStreams.size(); ++i) {
    const Costs cost = mean_costs(kStreams[i], 200, 600);
    EXPECT_LT(cost.fused, std::min(cost.draft, cost.text) + 0.03) << "stream " << i;
  }
}

TEST(Fusion, FromTheFirstTokenOnItCostsLittleMoreThanTheMainSource) {
  for (size_t i = 0; i < kStreams.size(); ++i) {
    const Costs cost = mean_costs(kStreams[i], 0, 20);
    EXPECT_LT(cost.fused, cost.draft + 0.1) << "stream " << i;
  }
}

TEST(Fusion, WhereBothKnowSomethingItCodesBetterThanEither) {
  const Costs cost = mean_costs(kStreams[0], 200, 600);
  EXPECT_LT(cost.fused, std::min(cost.draft, cost.text) - 0.1);
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
    const auto fused =
        fusion.fuse(NodeId(round), Said{{{1, 0.9f}, {2, 0.05f}}, text_speaks ? Candidates{{1, 0.6f}} : Candidates{}});
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
  const Said said = {{{1, 0.7f}, {2, 0.2f}}, {}};
  const auto before = fusion.fuse(NodeId(1), said);
  const std::vector<NodeId> gone = {NodeId(1)};
  fusion.forget(gone);
  for (int i = 0; i < 50; ++i) fusion.learn(NodeId(1), 2);
  EXPECT_EQ(fusion.fuse(NodeId(2), said).at(0).probability, before.at(0).probability);
}

}  // namespace
}  // namespace sluice

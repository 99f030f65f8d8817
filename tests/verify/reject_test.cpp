#include "verify/reject.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "source/draw.h"

namespace sluice {
namespace {

const std::vector<Candidate> kQ = {{3, 0.5f}, {1, 0.2f}, {7, 0.15f}, {5, 0.1f}, {2, 0.05f}};
const std::vector<double> kP = {0, 0.3, 0, 0.25, 0, 0.2, 0, 0.1, 0, 0.15};  // by token

DrawSite at(int32_t position) { return {.position = static_cast<uint32_t>(position), .purpose = Purpose::kDraft}; }

// What SSD drafts for beside the drawn token: the f likeliest others.
std::set<Token> cached(Token drawn, int32_t f) {
  std::set<Token> tokens;
  for (const Candidate& c : kQ)
    if (c.token != drawn && tokens.size() < static_cast<size_t>(f)) tokens.insert(c.token);
  return tokens;
}

TEST(BendOdds, AreWhatDrawingAndRejectingComesTo) {
  constexpr int kTries = 40000;
  for (const int32_t f : {1, 2, 4, 9}) {
    const Draws any = draw_candidates(kQ, {.c = 0.3, .f = f}, {}, 1, false);  // whatever c was, the odds are the same
    const auto odds = bend_odds(kP, any);
    ASSERT_EQ(odds.size(), kBends.size());
    for (size_t i = 0; i < odds.size(); ++i) {
      int accepted = 0, hits = 0;
      for (int32_t position = 0; position < kTries; ++position) {
        const Draws draws = draw_candidates(kQ, {.c = kBends[i], .f = f}, at(position), 1, false);
        const Token next = draw_by_rejection(kP, draws, {}, position);
        accepted += next == draws.tokens[0];
        hits += next != draws.tokens[0] && cached(draws.tokens[0], f).contains(next);
      }
      EXPECT_NEAR(odds[i].accepted, accepted / double{kTries}, 0.012) << "f " << f << ", c " << kBends[i];
      EXPECT_NEAR(odds[i].hit, hits / double(kTries - accepted), 0.02) << "f " << f << ", c " << kBends[i];
    }
  }
}

TEST(BendOdds, OfATargetThatAgreesAreCertain) {
  const std::vector<double> same = {0, 0.2, 0.05, 0.5, 0, 0.1, 0, 0.15};
  const auto odds = bend_odds(same, draw_candidates(kQ, {.c = 1.0, .f = 2}, {}, 1, false));
  EXPECT_NEAR(odds[0].accepted, 1.0, 1e-6);
  EXPECT_NEAR(odds[0].hit, 1.0, 1e-6);
  EXPECT_LT(odds.back().accepted, 0.5);
  EXPECT_NEAR(odds.back().hit, 1.0, 0.1) << "all that is left is what was made unlikely";
}

TEST(DrawCandidates, MakesAsManyDrawsAsItIsAskedFor) {
  for (int32_t position = 0; position < 50; ++position) {
    EXPECT_EQ(draw_candidates(kQ, {}, at(position), 3, /*replacement=*/true).tokens.size(), 3u);
    EXPECT_EQ(draw_candidates(kQ, {}, at(position), 9, /*replacement=*/true).tokens.size(), 9u);
    const auto once = draw_candidates(kQ, {}, at(position), 3, /*replacement=*/false).tokens;
    EXPECT_EQ(std::set<Token>(once.begin(), once.end()).size(), 3u);
    EXPECT_EQ(draw_candidates(kQ, {}, at(position), 9, /*replacement=*/false).tokens.size(), kQ.size());
  }
}

TEST(RankedCandidates, BeginWithTheDrawnOnesAndAreNeverLikelierThanThoseBefore) {
  const Draws draws{.q = kQ, .tokens = {5, 3, 5}, .replacement = true};
  const auto candidates = ranked(draws, kQ);
  ASSERT_EQ(candidates.size(), kQ.size());
  EXPECT_EQ(candidates[0].token, 5);
  EXPECT_EQ(candidates[1].token, 3);
  EXPECT_EQ(candidates[2].token, 1);
  for (size_t i = 1; i < candidates.size(); ++i) EXPECT_LE(candidates[i].probability, candidates[i - 1].probability);
  EXPECT_GT(candidates[0].probability, 0.3f);
}

}  // namespace
}  // namespace sluice

#include "method/scripted.h"

namespace sluice {
namespace {

using namespace test;

// Counts up; what the target says is up to the test.
std::vector<Candidate> next_number(const Tokens& text) { return {{text.empty() ? 10 : text.back() + 1, 0.5f}}; }

TEST(SpeculativeDecoding, TheWholeChainEntersOnceItIsDrafted) {
  Scripted play("sd", {.depth = 4}, next_number);
  for (int asked = 0; asked < 4; ++asked) {
    const Proposal proposal = play.propose();
    EXPECT_TRUE(proposal.enter.empty()) << "the chain is not complete";
    ASSERT_EQ(proposal.expand.size(), 1u);
    play.answer(proposal.expand[0]);
  }
  EXPECT_EQ(play.enter(play.propose().enter), (Tokens{9, 10, 11, 12, 13}));
}

TEST(SpeculativeDecoding, NothingIsDraftedWhileTheTargetVerifies) {
  Scripted play("sd", {.depth = 4}, next_number);
  play.step();
  for (const bool first_stage : {false, true}) {
    const Proposal proposal = play.propose(first_stage);
    EXPECT_TRUE(proposal.enter.empty());
    EXPECT_TRUE(proposal.expand.empty());
  }
}

TEST(SpeculativeDecoding, AfterTheVerdictItDraftsFromTheTargetsOwnToken) {
  Scripted play("sd", {.depth = 3}, next_number);
  play.step();
  EXPECT_TRUE(play.verdict(10).hit);
  EXPECT_FALSE(play.verdict(30).hit);
  EXPECT_EQ(play.step(), (Tokens{30, 31, 32, 33}));
  for (const Token token : {31, 32, 33}) EXPECT_TRUE(play.verdict(token).hit);
  EXPECT_FALSE(play.verdict(34).hit) << "the token after a chain that was right is a guess of nobody";
  EXPECT_EQ(play.step(), (Tokens{34, 35, 36, 37}));
}

TEST(SpeculativeDecoding, TheDraftIsAskedBeforeTheFirstStageIsFree) {
  Scripted play("sd", {.depth = 2}, next_number);
  EXPECT_EQ(play.step(/*first_stage=*/false), Tokens{});
  EXPECT_EQ(play.n_asked, 2u);
  EXPECT_EQ(play.step(), (Tokens{9, 10, 11}));
}

TEST(SpeculativeDecoding, ASourceThatHasNothingToSayEndsTheChain) {
  Scripted play("sd", {.depth = 4}, [](const Tokens& text) -> std::vector<Candidate> {
    if (text.size() == 2) return {};
    return {{7, 0.5f}};
  });
  EXPECT_EQ(play.step(), (Tokens{9, 7, 7}));
}

TEST(SpeculativeDecoding, NoChainGoesBeyondTheLastPosition) {
  Scripted play("sd", {.depth = 4}, next_number, /*last_position=*/7);
  EXPECT_EQ(play.step(), (Tokens{9, 10, 11}));  // at 5, 6 and 7
}

}  // namespace
}  // namespace sluice

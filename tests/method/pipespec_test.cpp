#include <algorithm>
#include <random>

#include "method/scripted.h"

namespace sluice {
namespace {

using namespace test;

// The model of stage `stage`: its token after a text. The larger they are, the more often they say what the target
// says.
Token says(uint64_t seed, size_t stage, size_t n_stages, const Tokens& text) {
  auto token = static_cast<Token>(3.0 * chance(seed, text));  // the target's
  for (size_t s = n_stages; s-- > stage;)
    if (chance(seed, text, s + 1) < 0.25) token = static_cast<Token>(3.0 * chance(seed, text, s + 100));
  return token;
}
Token target_says(uint64_t seed, const Tokens& text) { return static_cast<Token>(3.0 * chance(seed, text)); }

bool asks(const Proposal& proposal, size_t stage) {
  return std::any_of(proposal.expand.begin(), proposal.expand.end(),
                     [&](const Ask& ask) { return ask.source == stage; });
}

// Three models whose answers are given by hand.
struct ByHand : Scripted {
  explicit ByHand(int32_t lookahead = 0, size_t n_models = 3)
      : Scripted("pipespec", {.lookahead = lookahead}, {}, 1000, n_models) {}
  // The model says these after the nodes that it is asked about, in their order.
  void work(size_t stage, const Tokens& tokens) {
    const Proposal proposal = propose();
    size_t i = 0;
    for (const Ask& ask : proposal.expand)
      if (ask.source == stage) answer(ask, {{tokens.at(i++), 0.9f}});
    EXPECT_EQ(i, tokens.size()) << "stage " << stage << " is asked about another number of nodes";
  }
};

TEST(PipeSpec, EveryModelWorksAtOnceOnWhatItsPredecessorHasProduced) {
  ByHand play;
  EXPECT_TRUE(asks(play.propose(), 0) && asks(play.propose(), 1) && asks(play.propose(), 2));
  for (const Token token : {1, 2, 3}) play.work(0, {token});
  const Proposal proposal = play.propose();
  size_t of_second = 0;
  for (const Ask& ask : proposal.expand) of_second += ask.source == 1;
  EXPECT_EQ(of_second, 4u);  // what comes after the root, 1, 2 and 3: all in one batch
}

TEST(PipeSpec, TheTargetTakesWhatTheLargestDraftModelHasProduced) {
  ByHand play;
  play.work(0, {1});
  play.work(0, {2});
  play.work(1, {1, 2, 3});
  play.work(2, {1, 2, 5, 7});  // agrees with 1 and 2, not with 3; what it says after 3 is void
  EXPECT_EQ(play.enter(play.propose().enter), (Tokens{9, 1, 2, 5}));
  EXPECT_TRUE(play.propose().enter.empty()) << "one batch at a time";
}

TEST(PipeSpec, ARejectionTakesAllSmallerModelsBack) {
  ByHand play;
  for (const Token token : {1, 2, 3}) play.work(0, {token});
  play.work(1, {1, 2, 3, 4});
  play.work(2, {1, 6, 7, 8, 9});
  // All three go on after 1 6.
  const Proposal proposal = play.propose();
  ASSERT_EQ(proposal.expand.size(), 3u);
  for (const Ask& ask : proposal.expand) EXPECT_EQ(play.text(ask.node), (Tokens{1, 6}));
}

TEST(PipeSpec, ARejectionByTheTargetTakesAllModelsBack) {
  ByHand play;
  for (const Token token : {1, 2, 3}) play.work(0, {token});
  play.work(1, {1, 2, 3, 4});
  play.work(2, {1, 2, 3, 4, 5});
  play.enter(play.propose().enter);
  EXPECT_TRUE(play.verdict(1).hit);
  EXPECT_FALSE(play.verdict(7).hit);
  const Proposal proposal = play.propose();
  ASSERT_EQ(proposal.expand.size(), 3u);
  for (const Ask& ask : proposal.expand) EXPECT_EQ(ask.node, play.tree().root().id);
}

TEST(PipeSpec, WhatTheTargetAcceptsLeavesTheModelsWhereTheyAre) {
  ByHand play(/*lookahead=*/0, /*n_models=*/2);
  for (const Token token : {1, 2, 3, 4, 5}) play.work(0, {token});
  play.work(1, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(play.enter(play.propose().enter), (Tokens{9, 1, 2, 3, 4, 5, 6}));
  for (const Token token : {7, 8, 9}) play.work(0, {token});  // meanwhile
  for (const Token token : {1, 2, 3, 4, 5, 6, 7}) EXPECT_TRUE(play.verdict(token).hit);
  std::vector<size_t> lengths[2];  // of the texts that each of them goes on after
  for (const Ask& ask : play.propose().expand) lengths[ask.source].push_back(play.text(ask.node).size());
  EXPECT_EQ(lengths[0], std::vector<size_t>{9});
  EXPECT_EQ(lengths[1], (std::vector<size_t>{7, 8, 9}));
  play.work(1, {8, 9, 3});
  EXPECT_EQ(play.enter(play.propose().enter), (Tokens{7, 8, 9, 3}));
}

TEST(PipeSpec, AVerifierWaitsForTheLookahead) {
  ByHand play(/*lookahead=*/2, /*n_models=*/2);
  EXPECT_FALSE(asks(play.propose(), 1));
  play.work(0, {1});
  EXPECT_FALSE(asks(play.propose(), 1));
  EXPECT_TRUE(play.propose().enter.empty());
  play.work(0, {2});
  EXPECT_TRUE(asks(play.propose(), 1));
  EXPECT_TRUE(play.propose().enter.empty()) << "the target waits for two tokens of the second model";
  play.work(1, {1, 2, 3});
  EXPECT_EQ(play.propose().enter.size(), 4u);
}

TEST(PipeSpec, AVerifierWaitsForADoubt) {
  ByHand play(kWaitForDoubt, /*n_models=*/1);
  const auto say = [&](Token token, float probability) {
    for (const Ask& ask : play.propose().expand) play.answer(ask, {{token, probability}});
  };
  EXPECT_TRUE(play.propose().enter.empty()) << "nothing to verify is nothing to doubt";
  say(1, 0.99f);
  say(2, 0.95f);
  EXPECT_TRUE(play.propose().enter.empty()) << "both are right with a chance of 0.94";
  say(3, 0.95f);  // all three with one of 0.89
  EXPECT_EQ(play.enter(play.propose().enter), (Tokens{9, 1, 2, 3}));
}

TEST(PipeSpec, ADoubtIsWhatTheProducerDoubts) {
  ByHand play(kWaitForDoubt, /*n_models=*/2);
  for (const Ask& ask : play.propose().expand) play.answer(ask, {{1, 0.5f}});
  EXPECT_TRUE(asks(play.propose(), 1)) << "the smaller model doubts its token";
  for (const Ask& ask : play.propose().expand)
    if (ask.source == 1) play.answer(ask, {{1, 0.99f}});
  EXPECT_TRUE(play.propose().enter.empty()) << "the larger one does not";
}

TEST(PipeSpec, NobodyWaitsForAModelThatGoesNoFurther) {
  ByHand play(/*lookahead=*/5, /*n_models=*/2);
  play.work(0, {1});
  for (const Ask& ask : play.propose().expand)
    if (ask.source == 0) play.answer(ask, {});  // it has nothing to say
  play.work(1, {1, 2});
  for (const Ask& ask : play.propose().expand)
    if (ask.source == 0) play.answer(ask, {});
  for (const Ask& ask : play.propose().expand)
    if (ask.source == 1) play.answer(ask, {});
  EXPECT_EQ(play.propose().enter.size(), 3u);
}

// A larger model overrules another in favour of what the smallest had once produced: its old work serves again, and
// nobody is left without work.
TEST(PipeSpec, AModelTakenBackToWhereItHadBeenGoesOnAtOnce) {
  ByHand play;
  for (const Token token : {1, 2, 3}) play.work(0, {token});
  play.work(1, {5, 6, 7, 8});  // not 1 but 5
  play.work(2, {1, 4});        // 1 after all
  const Proposal proposal = play.propose();
  for (size_t stage = 0; stage < 3; ++stage) EXPECT_TRUE(asks(proposal, stage)) << "stage " << stage << " idles";
}

// Random models, random moments: what enters is always what the largest draft model alone would have said, and no model
// idles unless it is far ahead or waits for the tokens of its predecessor.
TEST(PipeSpec, WhateverTheTimingTheTargetGetsWhatTheLargestModelAloneWouldSay) {
  size_t entered = 0, accepted = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937 random(static_cast<uint32_t>(seed));
    const size_t n = 1 + random() % 3;
    const auto lookahead = static_cast<int32_t>(random() % 4) - 1;  // kWaitForDoubt is one of them
    const auto last_position = static_cast<int32_t>(5 + 40);
    Scripted play("pipespec", {.lookahead = lookahead}, {}, last_position, n);
    std::vector<std::vector<NodeId>> working(n);
    std::vector<NodeId> verifying;
    for (int turn = 0; turn < 4000 && play.tree().root().position < last_position; ++turn) {
      uint32_t idle = 0;
      for (size_t stage = 0; stage < n; ++stage)
        if (working[stage].empty()) idle |= 1u << stage;
      const Proposal proposal = play.propose(true, idle);
      for (const Ask& ask : proposal.expand) {
        ASSERT_TRUE(idle >> ask.source & 1);
        working[ask.source].push_back(ask.node);
      }
      const bool rest =
          play.tree().deepest() >= last_position || play.tree().deepest() - play.tree().root().position >= 60;
      if (idle & 1) {
        ASSERT_TRUE(rest || asks(proposal, 0)) << "the smallest model idles; seed " << seed << ", turn " << turn;
      }
      if (!proposal.enter.empty()) {
        Tokens expected = {play.tree().root().token}, text = play.committed;
        for (size_t i = 1; i < proposal.enter.size(); ++i) {
          expected.push_back(says(seed, n - 1, n, text));
          text.push_back(expected.back());
        }
        ASSERT_EQ(play.enter(proposal.enter), expected) << "seed " << seed << ", turn " << turn;
        verifying = proposal.enter;
        entered += expected.size() - 1;
      }
      const size_t who = random() % (n + 1);  // comes to an end
      if (who < n) {
        for (const NodeId node : std::exchange(working[who], {}))
          if (play.tree().contains(node))
            play.answer({node, who}, {{says(seed, who, n, play.text(node)),
                                       0.9f + 0.1f * static_cast<float>(chance(seed, play.text(node), 77))}});
      } else if (!verifying.empty()) {
        for (size_t i = 0; i < verifying.size(); ++i) {
          const Token token = target_says(seed, play.committed);
          const auto hit = play.verdict(token).hit;
          accepted += hit;
          if (i + 1 == verifying.size() || !hit || play.tree().root().id != verifying[i + 1]) break;
        }
        verifying.clear();
      }
    }
    ASSERT_GE(play.tree().root().position, last_position) << "seed " << seed << ": it has come to a stop";
  }
  EXPECT_GT(entered, 1000u);
  EXPECT_GT(accepted, 1000u);
}

}  // namespace
}  // namespace sluice

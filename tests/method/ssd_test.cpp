#include "method/ssd.h"

#include <algorithm>
#include <set>

#include "method/policy.h"
#include "method/scripted.h"
#include "theory/fan_out.h"

namespace sluice {
namespace {

using namespace test;

// The chain's own tokens and, beside each, others: five after every text.
const Oracle kOracle = random_oracle(11, 5);

// A round under way, with everything drafted for its outcomes.
struct Round {
  explicit Round(MethodOptions options, size_t n_sources = 1)
      : play("ssd", options, kOracle, 1000, n_sources), ssd(dynamic_cast<Ssd&>(play.method())) {
    begin();
  }

  void begin() {
    const Proposal proposal = ready();
    chain = proposal.enter;
    play.enter(chain);
    play.step();
  }
  // The first proposal in which something enters.
  Proposal ready() {
    for (;;) {
      Proposal proposal = play.propose();
      if (!proposal.enter.empty() || proposal.expand.empty()) return proposal;
      for (const Ask& ask : proposal.expand) play.answer(ask);
      play.n_asked += proposal.expand.size();
    }
  }
  // The target accepts k of the chain, then says the source's choice of this rank.
  bool outcome(size_t k, size_t rank) {
    for (size_t i = 0; i < k; ++i) EXPECT_TRUE(play.verdict(play.tree().node(chain[i + 1]).token).hit);
    return play.verdict(kOracle(play.committed)[rank].token).hit;
  }
  // The tokens after the k-th token of the chain for which something is drafted.
  std::vector<Token> foreseen(size_t k) const {
    std::vector<Token> tokens;
    for (const auto& node : play.tree().nodes())
      if (node.parent == chain[k] && (k + 1 == chain.size() || node.id != chain[k + 1])) tokens.push_back(node.token);
    return tokens;
  }

  Scripted play;
  Ssd& ssd;
  std::vector<NodeId> chain;
};

TEST(Ssd, AChainIsDraftedAndEntersLikeSpeculativeDecodings) {
  Scripted play("ssd", {.depth = 3}, kOracle);
  Tokens text, expected = {9};
  for (int i = 0; i < 3; ++i) {
    text.push_back(kOracle(text)[0].token);
    expected.push_back(text.back());
  }
  EXPECT_EQ(play.step(), expected);
}

TEST(Ssd, TheOutcomesAreTheSourcesNextChoicesAsManyAsTheFanOutSays) {
  for (const int32_t budget : {1, 4, 12}) {
    Round round({.depth = 4, .budget = budget});
    const auto fan = best_fanout(accepted_length_distribution(0.8, 4), {.scale = 0.5, .exponent = 1.0}, budget);
    int total = 0;
    for (size_t k = 0; k < round.chain.size(); ++k) {
      const auto tokens = round.foreseen(k);
      ASSERT_EQ(tokens.size(), std::min<size_t>(static_cast<size_t>(fan[k]), k < 4 ? 4 : 5)) << "k " << k;
      const auto candidates = kOracle(round.play.text(round.chain[k]));
      const size_t first = k < 4 ? 1 : 0;  // the drafted token was rejected, so it is no outcome
      for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], candidates[first + i].token) << "k " << k;
      total += fan[k];
    }
    EXPECT_LE(total, budget);
  }
}

TEST(Ssd, EveryOutcomeHasAChainOfItsOwn) {
  Round round({.depth = 3, .budget = 8});
  for (size_t k = 0; k < round.chain.size(); ++k)
    for (const Token token : round.foreseen(k)) {
      NodeId at = *round.play.tree().child(round.chain[k], token);
      for (int i = 0; i < 3; ++i) {
        const auto next = round.play.tree().child(at, kOracle(round.play.text(at))[0].token);
        ASSERT_TRUE(next) << "k " << k << ", token " << i;
        at = *next;
      }
    }
}

TEST(Ssd, AForeseenOutcomesChainEntersAtOnce) {
  Round round({.depth = 3, .budget = 12});
  ASSERT_TRUE(round.outcome(1, 1));
  const size_t asked = round.play.n_asked;
  const Proposal proposal = round.ready();
  EXPECT_EQ(proposal.enter.size(), 4u);
  EXPECT_EQ(round.play.n_asked, asked);
}

TEST(Ssd, AnUnforeseenOutcomeIsDraftedFromTheTargetsToken) {
  Round round({.depth = 3, .budget = 1});  // k = 3 alone
  ASSERT_FALSE(round.outcome(1, 2));
  const size_t asked = round.play.n_asked;
  const Proposal proposal = round.ready();
  EXPECT_EQ(proposal.enter.size(), 4u);
  EXPECT_EQ(round.play.n_asked, asked + 3);
}

// Who is asked when an outcome comes that was not foreseen, and what then.
std::set<size_t> drafters(Round& round, size_t n_requests) {
  EXPECT_FALSE(round.outcome(1, 4));
  std::set<size_t> sources;
  for (;;) {
    const Proposal proposal =
        round.play.propose({.first_stage = true, .sources = ~0u, .instant = 2, .n_requests = n_requests});
    for (const Ask& ask : proposal.expand) {
      sources.insert(ask.source);
      round.play.answer(ask);
    }
    if (proposal.enter.empty()) continue;
    round.chain = proposal.enter;
    round.play.enter(round.chain);
    return sources;
  }
}

TEST(Ssd, AMissAmongManyRequestsIsDraftedByNgrams) {
  constexpr size_t kFew = policy::kFewRequests;
  const auto of = [](Fallback fallback, size_t n_requests, size_t n_sources = 2) {
    Round round({.depth = 3, .budget = 1, .fallback = fallback}, n_sources);
    return drafters(round, n_requests);
  };
  const std::set<size_t> model = {0}, ngrams = {1};
  EXPECT_EQ(of(Fallback::kAuto, 1), model);
  EXPECT_EQ(of(Fallback::kAuto, kFew), model);
  EXPECT_EQ(of(Fallback::kAuto, kFew + 1), ngrams);
  EXPECT_EQ(of(Fallback::kAuto, kFew + 1, 1), model) << "there are no n-grams";
  EXPECT_EQ(of(Fallback::kDraft, 100), model);
  EXPECT_EQ(of(Fallback::kNgram, 1), ngrams);
}

TEST(Ssd, OfAChainByNgramsTheDraftModelForeseesTheOutcomes) {
  Round round({.depth = 3, .budget = 12, .fallback = Fallback::kNgram}, 2);
  ASSERT_EQ(drafters(round, 1), std::set<size_t>{1});
  const Proposal first = round.play.propose();
  ASSERT_EQ(first.expand.size(), round.chain.size());
  for (size_t k = 0; k < round.chain.size(); ++k) {
    EXPECT_EQ(first.expand[k], (Ask{round.chain[k], 0}));
    // What the chain's next token is to n-grams, the model ranks second.
    auto said = kOracle(round.play.text(round.chain[k]));
    std::swap(said[0].token, said[1].token);
    round.play.answer(first.expand[k], said);
  }
  round.play.step();
  const auto candidates = kOracle(round.play.text(round.chain[1]));
  const auto foreseen = round.foreseen(1);
  ASSERT_FALSE(foreseen.empty());
  EXPECT_EQ(foreseen[0], candidates[1].token);
  EXPECT_EQ(std::count(foreseen.begin(), foreseen.end(), candidates[0].token), 0) << "it is the chain's";
  EXPECT_TRUE(round.outcome(1, 1));
}

TEST(Ssd, HitsAreCountedByTheNumberOfAcceptedTokens) {
  Round round({.depth = 3, .budget = 12});
  for (const auto& [k, rank] : {std::pair<size_t, size_t>{0, 1}, {1, 1}, {1, 4}, {3, 0}, {3, 0}, {2, 4}}) {
    round.outcome(k, rank);
    round.begin();
  }
  const auto& outcomes = round.ssd.outcomes();
  ASSERT_EQ(outcomes.size(), 4u);
  EXPECT_EQ(outcomes[0].rounds, 1);
  EXPECT_EQ(outcomes[0].hits, 1);
  EXPECT_EQ(outcomes[1].rounds, 2);
  EXPECT_EQ(outcomes[1].hits, 1);  // the fourth of the others is too unlikely
  EXPECT_EQ(outcomes[2].rounds, 1);
  EXPECT_EQ(outcomes[2].hits, 0);
  EXPECT_EQ(outcomes[3].rounds, 2);
  EXPECT_EQ(outcomes[3].hits, 2);
}

TEST(Ssd, AChainThatCouldNotEnterIsNoRound) {
  Scripted play("ssd", {.depth = 2}, kOracle);
  for (int i = 0; i < 2; ++i) play.answer(play.propose().expand.at(0));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(play.propose().enter.size(), 3u);  // other requests have taken the room
  EXPECT_TRUE(dynamic_cast<Ssd&>(play.method()).outcomes().empty());
  play.step();
  play.verdict(kOracle({})[0].token);
  play.verdict(49);
  play.step();
  const auto& outcomes = dynamic_cast<Ssd&>(play.method()).outcomes();
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_EQ(outcomes[0].rounds, 0);
  EXPECT_EQ(outcomes[1].rounds, 1);
}

TEST(Ssd, TheFanOutFollowsWhatHasBeenSeen) {
  // Everything is accepted, always: what remains to be guessed is the token after the chain.
  Round always({.depth = 3, .budget = 6});
  for (int i = 0; i < 60; ++i) {
    always.outcome(3, 0);
    always.begin();
  }
  // Nothing is: what the target says instead of the first token.
  Round never({.depth = 3, .budget = 6});
  for (int i = 0; i < 60; ++i) {
    never.outcome(0, 1);
    never.begin();
  }
  EXPECT_GT(always.foreseen(3).size(), always.foreseen(0).size());
  EXPECT_GT(never.foreseen(0).size(), never.foreseen(3).size());
}

TEST(Ssd, NothingGoesBeyondTheLastPosition) {
  Scripted play("ssd", {.depth = 6}, kOracle, /*last_position=*/8);
  for (int i = 0; i < 4; ++i) play.step();
  EXPECT_LE(play.tree().deepest(), 8);
}

// C after verifications with these odds, when K draft passes take so much of a verification.
double chosen_c(const std::vector<BendOdds>& odds, double drafting, Fallback fallback = Fallback::kDraft) {
  Round round({.depth = 4, .budget = 12, .fallback = fallback, .saguaro = 0.0}, fallback == Fallback::kDraft ? 1 : 2);
  EXPECT_EQ(round.ssd.bend(round.play.tree(), round.chain[0]).c, 1.0) << "nothing is known yet";
  for (int i = 0; i < 3; ++i) round.ssd.learn(odds);
  round.outcome(1, 2);
  PassTimes target, draft;
  target.saw(5, 1.0);
  draft.saw(1, drafting / 4);
  round.play.propose({.first_stage = true, .sources = ~0u, .stage_times = &target, .draft_times = &draft});
  for (;;) {
    const Proposal proposal =
        round.play.propose({.first_stage = true, .sources = ~0u, .stage_times = &target, .draft_times = &draft});
    for (const Ask& ask : proposal.expand) round.play.answer(ask);
    if (!proposal.enter.empty()) break;
  }
  return round.ssd.bend(round.play.tree(), round.play.tree().root().id).c;
}

TEST(Ssd, CIsSmallWhereMissesCostMoreThanRejections) {
  std::vector<BendOdds> odds;  // acceptance falls a little, hits rise much
  for (const double c : kBends) odds.push_back({.accepted = 0.6 + 0.1 * c, .hit = 0.9 - 0.6 * c});
  EXPECT_EQ(chosen_c(odds, 0.9), kBends.back());
  EXPECT_EQ(chosen_c(odds, 0.0), 1.0) << "a miss costs nothing";
  for (size_t i = 0; i < odds.size(); ++i) odds[i].hit = 0.9;
  EXPECT_EQ(chosen_c(odds, 0.9), 1.0) << "nothing is won";
}

// Who falls back on n-grams loses no time by a miss, but nearly all of the tokens of a round.
TEST(Ssd, CReckonsWithTheFallbackThatThereIs) {
  std::vector<BendOdds> odds;
  for (const double c : kBends) odds.push_back({.accepted = 0.6 + 0.1 * c, .hit = 0.9 - 0.6 * c});
  EXPECT_EQ(chosen_c(odds, 0.0, Fallback::kDraft), 1.0) << "the draft model drafts as much, and at once";
  EXPECT_LT(chosen_c(odds, 0.0, Fallback::kNgram), 0.3) << "n-grams draft at once, but hardly anything";
}

TEST(Ssd, FIsWhatIsDraftedForBehindTheToken) {
  Round round({.depth = 3, .budget = 9, .saguaro = 0.5});
  for (size_t k = 0; k < round.chain.size(); ++k) {
    const Bend by = round.ssd.bend(round.play.tree(), round.chain[k]);
    EXPECT_EQ(by.c, 0.5);
    round.ready();
    EXPECT_EQ(static_cast<size_t>(by.f), round.foreseen(k).size()) << k;
  }
  Round fixed({.depth = 3, .budget = 9, .saguaro = 0.5, .saguaro_tokens = 2});
  EXPECT_EQ(fixed.ssd.bend(fixed.play.tree(), fixed.chain[1]).f, 2);
}

}  // namespace
}  // namespace sluice

#include "verify/verifier.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <thread>

#include "support/broken.h"

namespace sluice {
namespace {

constexpr SequenceId kA{1}, kB{2};
constexpr size_t kVocabulary = 32;

// A toy target: its own next token after a token, with certainty.
Token next_of(Token token) { return static_cast<Token>((5 * token + 3) % kVocabulary); }

std::vector<float> logits_after(Token token) {
  std::vector<float> logits(kVocabulary, 0.0f);
  logits[next_of(token)] = 50.0f;
  return logits;
}

Row row(SequenceId sequence, Row::Kind kind, Token token, int32_t position, int32_t cell, int32_t parent) {
  return {sequence, token, position, Cell(cell), Cell(parent), kind, 0};
}
Row node(Token token, int32_t position, int32_t cell, int32_t parent, SequenceId sequence = kA) {
  return row(sequence, Row::Kind::kNode, token, position, cell, parent);
}
Row prompt(Token token, int32_t position, int32_t cell, int32_t parent, SequenceId sequence = kA) {
  return row(sequence, Row::Kind::kPrompt, token, position, cell, parent);
}

// What the last worker does with a batch.
std::vector<Accepted> verify(Verifier& verifier, const std::vector<PathUpdate>& updates, const std::vector<Row>& rows) {
  for (const auto& update : updates) verifier.apply(update);
  for (const auto& row : rows)
    if (row.kind == Row::Kind::kPrompt) verifier.enter_prompt(row);
  std::vector<Accepted> accepted;
  for (auto alive = verifier.alive(rows); !alive.empty(); alive = verifier.alive(rows))
    for (const size_t i : alive) accepted.push_back(verifier.accept(rows[i], logits_after(rows[i].token)));
  return accepted;
}

std::vector<int32_t> cells(const std::vector<Accepted>& accepted) {
  std::vector<int32_t> result;
  for (const auto& a : accepted) result.push_back(a.cell.value);
  return result;
}

using Cells = std::vector<int32_t>;
using Tokens = std::vector<Token>;

Tokens path(const Verifier& verifier, SequenceId sequence = kA) {
  const auto tokens = verifier.path(sequence);
  return {tokens.begin(), tokens.end()};
}

TEST(Verifier, TheFirstNodeAfterThePromptIsTakenAndDrawsTheNextToken) {
  Verifier verifier;
  const auto accepted = verify(verifier, {Open{kA, {}}}, {prompt(7, 0, 0, -1), prompt(8, 1, 1, 0), node(9, 2, 2, 1)});
  ASSERT_EQ(accepted.size(), 1u);
  EXPECT_EQ(accepted[0].sequence, kA);
  EXPECT_EQ(accepted[0].cell, Cell(2));
  EXPECT_EQ(accepted[0].next, next_of(9));
  EXPECT_NEAR(accepted[0].logprob, 0.0f, 1e-6);
  EXPECT_EQ(path(verifier), (Tokens{7, 8, 9}));
}

constexpr Token kEnd = 0;

// Fails after one token of the answer.
class OfOneToken final : public Constraint {
 public:
  void accept(Token) override { ++n_; }
  void take_back(size_t n) override { n_ -= n; }
  const TokenMask* permitted() override { return failed() ? &end_ : nullptr; }
  bool failed() const override { return n_ > 1; }

 private:
  size_t n_ = 0;
  const TokenMask end_{{1 << kEnd}};
};

TEST(Verifier, AVerdictSaysThatTheAnswersFormHasFailed) {
  Verifier verifier(choose_by_noise, [](const AnswerGrammar&) { return std::make_unique<OfOneToken>(); });
  SamplingParams sampling;
  sampling.answer_from = 2;
  sampling.grammar.rules = "some";
  const Token first = next_of(8), second = next_of(first);
  const auto accepted = verify(verifier, {Open{kA, sampling}},
                               {prompt(7, 0, 0, -1), node(8, 1, 1, 0), node(first, 2, 2, 1), node(second, 3, 3, 2)});
  ASSERT_EQ(accepted.size(), 3u);
  EXPECT_FALSE(accepted[0].form_failed);
  EXPECT_FALSE(accepted[1].form_failed);
  EXPECT_EQ(accepted[1].next, second);
  EXPECT_TRUE(accepted[2].form_failed);
  EXPECT_EQ(accepted[2].next, kEnd);
}

TEST(Verifier, APromptOfOneTokenNeedsNoPromptRow) {
  Verifier verifier;
  EXPECT_EQ(cells(verify(verifier, {Open{kA, {}}}, {node(9, 0, 5, -1)})), Cells{5});
}

TEST(Verifier, PromptRowsAloneAcceptNothing) {
  Verifier verifier;
  EXPECT_TRUE(verify(verifier, {Open{kA, {}}}, {prompt(7, 0, 0, -1)}).empty());
}

TEST(Verifier, AChainIsAcceptedOverSeveralBatches) {
  Verifier verifier;
  verify(verifier, {Open{kA, {}}}, {prompt(1, 0, 0, -1)});
  Token token = 4;
  for (int position = 1; position < 10; ++position) {
    const auto accepted = verify(verifier, {}, {node(token, position, position, position - 1)});
    ASSERT_EQ(cells(accepted), Cells{position});
    token = accepted[0].next;
  }
}

TEST(Verifier, SeveralLevelsOfOneBatchAreAcceptedDownThePathUntilItLeavesTheTree) {
  Verifier verifier;
  const Token a = 3, b = next_of(a), c = next_of(b);
  const auto accepted = verify(verifier, {Open{kA, {}}},
                               {prompt(1, 0, 0, -1), node(a, 1, 1, 0), node(b + 1, 2, 2, 1), node(b, 2, 3, 1),
                                node(c, 3, 4, 2), node(c, 3, 5, 3), node(next_of(c) + 1, 4, 6, 5)});
  EXPECT_EQ(cells(accepted), (Cells{1, 3, 5}));
  EXPECT_EQ(accepted.back().next, next_of(c));
  EXPECT_EQ(path(verifier), (Tokens{1, a, b, c}));
}

TEST(Verifier, OfATreesLevelOnlyTheTargetsOwnTokenIsAlive) {
  Verifier verifier;
  verify(verifier, {Open{kA, {}}}, {prompt(1, 0, 0, -1), node(2, 1, 1, 0)});
  const std::vector<Row> level{node(20, 2, 2, 1), node(next_of(2), 2, 3, 1), node(21, 2, 4, 1)};
  EXPECT_EQ(verifier.alive(level), std::vector<size_t>{1});
  EXPECT_EQ(verifier.alive(level), std::vector<size_t>{1}) << "asking changes nothing";
  verifier.accept(level[1], logits_after(next_of(2)));
  EXPECT_TRUE(verifier.alive(level).empty()) << "no row is alive twice";
}

TEST(Verifier, AMissIsMendedByTheCorrectedNodeWhileStaleRowsPassBy) {
  Verifier verifier;
  const Token a = 3, b = next_of(a);
  verify(verifier, {Open{kA, {}}}, {prompt(1, 0, 0, -1), node(a, 1, 1, 0)});
  EXPECT_TRUE(verify(verifier, {}, {node(b + 1, 2, 2, 1)}).empty());  // a wrong guess
  EXPECT_TRUE(verify(verifier, {}, {node(11, 3, 3, 2)}).empty());     // its child, still in flight
  // The corrected node takes the cell of the wrong one: its old children have all passed.
  EXPECT_EQ(cells(verify(verifier, {Commit{kA, Cell(1)}}, {node(b, 2, 2, 1)})), Cells{2});
  EXPECT_EQ(cells(verify(verifier, {}, {node(next_of(b), 3, 4, 2)})), Cells{4});
}

TEST(Verifier, TruncateGoesBackToACellOfThePathAndTakesWhatFollows) {
  Verifier verifier;
  const Token a = 3, b = next_of(a), c = next_of(b);
  verify(verifier, {Open{kA, {}}}, {prompt(1, 0, 10, -1), node(a, 1, 11, 10), node(b, 2, 12, 11), node(c, 3, 13, 12)});
  // The stale child of the old end comes with the new rows and stays dead.
  const auto accepted = verify(verifier, {Truncate{kA, 2, {}}},
                               {node(next_of(c), 4, 14, 13), node(30, 2, 15, 11), node(next_of(30), 3, 16, 15)});
  EXPECT_EQ(cells(accepted), (Cells{15, 16}));
  EXPECT_EQ(path(verifier), (Tokens{1, a, 30, next_of(30)}));
}

TEST(Verifier, TruncateToNothingStartsAnew) {
  Verifier verifier;
  verify(verifier, {Open{kA, {}}}, {prompt(1, 0, 0, -1), node(2, 1, 1, 0)});
  EXPECT_EQ(cells(verify(verifier, {Truncate{kA, 0, {}}}, {prompt(5, 0, 2, -1), node(6, 1, 3, 2)})), Cells{3});
  EXPECT_EQ(path(verifier), (Tokens{5, 6}));
}

TEST(Verifier, AForkBeginsWithAPrefixAndTakesWhatFollows) {
  Verifier verifier;
  verify(verifier, {Open{kA, {}}}, {prompt(1, 0, 0, -1), prompt(2, 1, 1, 0), node(3, 2, 2, 1)});
  Row mine = node(9, 2, 3, 1);
  mine.sequence = kB;
  const SamplingParams forced{.logit_bias = {{17, 1000.0f}}};
  const auto accepted = verify(verifier, {Fork{kB, kA, 2, forced}, Truncate{kA, 1, {}}}, {mine});
  ASSERT_EQ(cells(accepted), Cells{3});
  EXPECT_EQ(accepted[0].next, 17);
  EXPECT_EQ(verifier.path(kB).size(), 3u);
  EXPECT_EQ(verifier.path(kA).size(), 1u) << "either goes its own way";
}

TEST(Verifier, TruncateBringsNewSamplingParameters) {
  Verifier verifier;
  SamplingParams forced;
  forced.logit_bias = {{17, 1000.0f}};
  verify(verifier, {Open{kA, {}}}, {prompt(1, 0, 0, -1), node(2, 1, 1, 0)});
  EXPECT_EQ(verify(verifier, {Truncate{kA, 1, forced}}, {node(2, 1, 1, 0)})[0].next, 17);
}

TEST(Verifier, ThePromptOfTheNextTurnGoesOnFromThePath) {
  Verifier verifier;
  const Token a = 3, b = next_of(a);
  verify(verifier, {Open{kA, {}}}, {prompt(1, 0, 0, -1), node(a, 1, 1, 0), node(b, 2, 2, 1)});
  // Whatever the target expected, the user's words are on the path.
  const auto accepted =
      verify(verifier, {Truncate{kA, 3, {}}}, {prompt(25, 3, 3, 2), prompt(26, 4, 4, 3), node(27, 5, 5, 4)});
  EXPECT_EQ(cells(accepted), Cells{5});
  EXPECT_EQ(path(verifier), (Tokens{1, a, b, 25, 26, 27}));
}

TEST(Verifier, TwoSequencesOfABatchAdvanceTogetherOneLevelARound) {
  Verifier verifier;
  for (const SequenceId s : {kA, kB}) verifier.apply(Open{s, {}});
  const Token a = 3, b = 9;
  const std::vector<Row> rows{node(a, 0, 0, -1, kA), node(next_of(a), 1, 1, 0, kA), node(b, 0, 2, -1, kB),
                              node(next_of(b) + 1, 1, 3, 2, kB), node(next_of(b), 1, 4, 2, kB)};
  EXPECT_EQ(verifier.alive(rows), (std::vector<size_t>{0, 2}));
  verifier.accept(rows[0], logits_after(a));
  verifier.accept(rows[2], logits_after(b));
  EXPECT_EQ(verifier.alive(rows), (std::vector<size_t>{1, 4}));
  verifier.accept(rows[1], logits_after(next_of(a)));
  verifier.accept(rows[4], logits_after(next_of(b)));
  EXPECT_TRUE(verifier.alive(rows).empty());
  EXPECT_EQ(path(verifier, kA), (Tokens{a, next_of(a)}));
  EXPECT_EQ(path(verifier, kB), (Tokens{b, next_of(b)}));
}

TEST(Verifier, AClosedSequenceCanBeOpenedAnew) {
  Verifier verifier;
  verify(verifier, {Open{kA, {}}}, {prompt(1, 0, 0, -1), node(2, 1, 1, 0)});
  EXPECT_EQ(cells(verify(verifier, {Close{kA}, Open{kA, {}}}, {node(5, 0, 7, -1)})), Cells{7});
}

// Sampled text is a function of the sequence alone: whatever else is in the batches, however they are cut.
TEST(Verifier, SampledTokensDoNotDependOnBatchesOrNeighbours) {
  const auto random_logits = [](Token token, int32_t position) {
    std::mt19937 random(static_cast<uint32_t>(1000 * position + token));
    std::normal_distribution<float> normal(0.0f, 2.0f);
    std::vector<float> logits(kVocabulary);
    for (float& logit : logits) logit = normal(random);
    return logits;
  };
  SamplingParams params{.temperature = 1.0f, .repeat_penalty = 1.2f, .seed = 5};
  constexpr int kLength = 40;

  Tokens alone{1};
  {
    Verifier verifier;
    verifier.apply(Open{kA, params});
    for (int i = 0; i < kLength; ++i)
      alone.push_back(verifier.accept(node(alone[i], i, i, i - 1), random_logits(alone[i], i)).next);
  }
  for (const int levels : {1, 3, 7}) {
    Verifier verifier;
    for (const SequenceId s : {kB, kA}) verifier.apply(Open{s, params});
    Tokens text{1};
    for (int first = 0; first < kLength; first += levels) {
      std::vector<Row> rows;
      for (int i = first; i < std::min(first + levels, kLength); ++i) {
        rows.push_back(node((alone[i] + 1) % static_cast<Token>(kVocabulary), i, 500 + i, i - 1));  // a wrong sibling
        rows.push_back(node(alone[i], i, 1000 + i, i == 0 ? -1 : 999 + i, kB));
        rows.push_back(node(alone[i], i, i, i - 1));
      }
      if (first == 0) rows.erase(rows.begin());  // any first token would be taken
      for (auto alive = verifier.alive(rows); !alive.empty(); alive = verifier.alive(rows))
        for (const size_t i : alive) {
          const auto accepted = verifier.accept(rows[i], random_logits(rows[i].token, rows[i].position));
          if (rows[i].sequence == kA) text.push_back(accepted.next);
        }
    }
    EXPECT_EQ(text, alone) << levels << " levels a batch";
    EXPECT_EQ(path(verifier, kB), path(verifier, kA));
  }
}

TEST(Verifier, TheRepetitionPenaltySeesThePathWithItsPrompt) {
  SamplingParams params;
  params.repeat_penalty = 2.0f;
  std::vector<float> logits(kVocabulary, 0.0f);
  logits[1] = 4.0f;  // of the prompt
  logits[2] = 3.5f;  // the row's own token
  logits[3] = 3.0f;  // of a dead branch
  Verifier verifier;
  for (const auto& update : {PathUpdate(Open{kA, params})}) verifier.apply(update);
  verifier.enter_prompt(prompt(1, 0, 0, -1));
  EXPECT_EQ(verifier.accept(node(2, 1, 1, 0), logits).next, 3);
}

TEST(Verifier, ACoordinatorsMistakesAreNamed) {
  Verifier verifier;
  verifier.apply(Open{kA, {}});
  verifier.enter_prompt(prompt(1, 0, 0, -1));
  EXPECT_BROKEN(verifier.apply(Open{kA, {}}), "opened once");
  EXPECT_BROKEN(verifier.apply(Truncate{kA, 2, {}}), "cut to a length");
  EXPECT_BROKEN(verifier.apply(Fork{kB, kA, 2, {}}), "cut to a length");
  EXPECT_BROKEN(verifier.apply(Fork{kA, kA, 0, {}}), "opened once");
  EXPECT_BROKEN(verifier.apply(Close{kB}), "is open");
  EXPECT_BROKEN(verifier.enter_prompt(prompt(1, 1, 1, 5)), "prolongs the path");
  EXPECT_BROKEN(verifier.enter_prompt(prompt(1, 2, 1, 0)), "in position");
  EXPECT_BROKEN(verifier.enter_prompt(prompt(1, 0, 0, -1, kB)), "is open");
  EXPECT_BROKEN(verifier.accept(node(1, 1, 1, 5), logits_after(1)), "alive");
}

TEST(Verifier, RowsOfSeveralSequencesMayBeAcceptedAtOnce) {
  const Spread pair(2, [](size_t n, const Spread::Part& part) {
    std::jthread helper([&] {
      for (size_t i = 1; i < n; i += 2) part(i, 1);
    });
    for (size_t i = 0; i < n; i += 2) part(i, 0);
  });
  Verifier one_by_one, at_once;
  std::vector<Verifier::Alive> alive;
  std::vector<std::vector<float>> logits(9, std::vector<float>(kVocabulary));
  const Draws draws{.q = {{4, 0.5f}, {7, 0.5f}}, .tokens = {7}};
  for (int32_t s = 0; s < 9; ++s) {
    const PathUpdate open = Open{
        SequenceId(s),
        {.temperature = 1.0f, .seed = 5, .rule = s % 2 == 0 ? Rule::kReject : Rule::kMatch, .top_logprobs = s % 3}};
    one_by_one.apply(open);
    at_once.apply(open);
    for (size_t i = 0; i < kVocabulary; ++i) logits[s][i] = static_cast<float>((7 * i + 3 * s) % 11) / 3.0f;
    alive.push_back({node(s, 0, s, -1, SequenceId(s)), logits[s], s % 2 == 0 ? &draws : nullptr});
  }
  const auto accepted = at_once.accept(alive, pair);
  ASSERT_EQ(accepted.size(), alive.size());
  for (size_t i = 0; i < alive.size(); ++i) {
    const Accepted one = one_by_one.accept(alive[i].row, alive[i].logits, alive[i].draws);
    EXPECT_EQ(accepted[i].next, one.next);
    EXPECT_EQ(accepted[i].logprob, one.logprob);
    EXPECT_EQ(accepted[i].sequence, one.sequence);
    ASSERT_EQ(accepted[i].top.size(), i % 3);
    for (size_t j = 0; j < i % 3; ++j) {
      EXPECT_EQ(accepted[i].top[j].token, one.top[j].token);
      EXPECT_EQ(accepted[i].top[j].logprob, one.top[j].logprob);
    }
  }
}

}  // namespace
}  // namespace sluice

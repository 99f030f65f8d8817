// A draft model's worker: guesses for every node that it is given.
#include <gtest/gtest.h>

#include "pipeline/recipe.h"
#include "support/harness.h"

namespace sluice {
namespace {

using namespace test;

constexpr SequenceId kText(0), kOther(1);

std::vector<Worker> draft_workers(std::shared_ptr<Memo> memo, int32_t guessable = 1000) {
  auto made =
      make_workers(two_layers().model, {.cuts = {{0, 1}, {1, 2}},
                                        .stage = {.kv = KvType::kF16, .n_cells = 256, .max_rows = 16, .threads = 1},
                                        .memo = std::move(memo),
                                        .candidates = 6,
                                        .guessable = guessable});
  EXPECT_TRUE(made);
  return std::move(*made);
}

Worker::Done run(std::vector<Worker>& workers, Batch batch) {
  Worker::Done done;
  for (Worker& worker : workers) {
    done = worker.process(std::move(batch));
    batch = std::move(done.onward);
  }
  return done;
}

Row row(SequenceId sequence, Token token, int32_t position, int32_t cell, int32_t parent, uint16_t index,
        Row::Kind kind = Row::Kind::kNode) {
  return {.sequence = sequence,
          .token = token,
          .position = position,
          .cell = sluice::Cell(cell),
          .parent = sluice::Cell(parent),
          .kind = kind,
          .index = index};
}

// Two sequences, one greedy, one sampled: a prompt row each and nodes after it, some of them ancestors of others.
std::vector<Batch> story(uint64_t seed) {
  Dice dice(seed);
  std::vector<Batch> batches;
  std::vector<Row> known;
  int32_t cell = 0;
  for (int32_t b = 0; b < 12; ++b) {
    Batch batch{.id = BatchId(b), .updates = {}, .rows = {}, .hidden = {}};
    if (b == 0) {
      batch.updates = {Open{kText, {}}, Open{kOther, {.temperature = 0.8f, .top_k = 9, .seed = seed}}};
      for (const SequenceId sequence : {kText, kOther})
        batch.rows.push_back(
            row(sequence, 70, 0, cell++, -1, static_cast<uint16_t>(batch.rows.size()), Row::Kind::kPrompt));
    }
    if (b == 6) batch.updates.push_back(Truncate{kText, 1, {.temperature = 2.0f, .seed = 5}});
    for (int32_t n = dice.between(0, 5); n > 0 && !known.empty(); --n) {
      const Row above = known[static_cast<size_t>(dice.below(static_cast<int32_t>(known.size())))];
      batch.rows.push_back(row(above.sequence, 60 + dice.below(4), above.position + 1, cell++, above.cell.value,
                               static_cast<uint16_t>(batch.rows.size())));
      known.push_back(batch.rows.back());
    }
    if (b == 0) known = batch.rows;
    batches.push_back(std::move(batch));
  }
  return batches;
}

void expect_equal(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.drafted.size(), b.drafted.size());
  for (size_t i = 0; i < a.drafted.size(); ++i) {
    EXPECT_EQ(a.drafted[i].row, b.drafted[i].row);
    ASSERT_EQ(a.drafted[i].candidates.size(), b.drafted[i].candidates.size());
    for (size_t c = 0; c < a.drafted[i].candidates.size(); ++c) {
      EXPECT_EQ(a.drafted[i].candidates[c].token, b.drafted[i].candidates[c].token);
      EXPECT_EQ(a.drafted[i].candidates[c].probability, b.drafted[i].candidates[c].probability);
    }
  }
}

TEST(DraftWorker, LazyGivesTheCandidatesOfFullAlsoFromTheMemo) {
  const auto memo = std::make_shared<Memo>();
  for (uint64_t seed = 0; seed < 10; ++seed) {
    auto full = draft_workers(nullptr), lazy = draft_workers(memo), again = draft_workers(memo);
    for (const Batch& batch : story(seed)) {
      const auto expected = run(full, batch), first = run(lazy, batch), second = run(again, batch);
      expect_equal(first.outcome, expected.outcome);
      expect_equal(second.outcome, expected.outcome);
      EXPECT_EQ(first.rows_computed, expected.rows_computed) << "the clock is the same";
      EXPECT_EQ(first.head_rows, expected.head_rows);
      EXPECT_EQ(second.head_rows, expected.head_rows);
    }
  }
}

TEST(DraftWorker, SpeaksOfEveryNodeButOfNoPromptRowAndNoDeadOne) {
  for (const bool lazy : {false, true}) {
    auto workers = draft_workers(lazy ? std::make_shared<Memo>() : nullptr);
    Batch batch{.id = BatchId(0), .updates = {Open{kText, {}}}, .rows = {}, .hidden = {}};
    batch.rows = {row(kText, 70, 0, 0, -1, 0, Row::Kind::kPrompt), row(kText, 71, 1, 1, 0, 1),
                  row(kText, 72, 1, 2, 0, 2), row(kText, 73, 2, 3, 2, 3), row(kText, 74, 2, 4, 1, 4)};
    for (Worker& worker : workers) worker.amend({{{BatchId(0), 2}, {BatchId(0), 3}}});
    const auto done = run(workers, batch);
    ASSERT_EQ(done.outcome.drafted.size(), 2u);
    EXPECT_EQ(done.outcome.drafted[0].row, 1);
    EXPECT_EQ(done.outcome.drafted[1].row, 4);
    EXPECT_EQ(done.head_rows, 2);
    EXPECT_EQ(done.rows_computed, 3);
    EXPECT_TRUE(done.outcome.accepted.empty()) << "a draft model verifies nothing";
    for (const Drafted& drafted : done.outcome.drafted) EXPECT_EQ(drafted.candidates.size(), 6u);
  }
}

TEST(DraftWorker, AMemoOfAnotherTargetNamesNoTokenThatThisOneLacks) {
  const auto memo = std::make_shared<Memo>();
  for (const int32_t guessable : {1000, 30}) {
    auto workers = draft_workers(memo, guessable);
    for (const Batch& batch : story(3))
      for (const Drafted& drafted : run(workers, batch).outcome.drafted)
        for (const Candidate& candidate : drafted.candidates) EXPECT_LT(candidate.token, guessable);
  }
}

// A target with more tokens than the draft model has: what it says of the others' successors depends on the context
// alone, whichever they are and however far beyond.
TEST(DraftWorker, TokensBeyondItsVocabularyAreAllTheSameToIt) {
  const Token n_vocab = two_layers().model.hparams().n_vocab;
  const auto guesses = [&](bool lazy, Token foreign, Token after) {
    auto workers = draft_workers(lazy ? std::make_shared<Memo>() : nullptr);
    Batch batch{.id = BatchId(0), .updates = {Open{kText, {}}}, .rows = {}, .hidden = {}};
    batch.rows.push_back(row(kText, foreign, 0, 0, -1, 0, Row::Kind::kPrompt));
    batch.rows.push_back(row(kText, 70, 1, 1, 0, 1, Row::Kind::kPrompt));
    batch.rows.push_back(row(kText, foreign, 2, 2, 1, 2));
    batch.rows.push_back(row(kText, after, 3, 3, 2, 3));
    std::vector<std::pair<Token, float>> said;
    const Worker::Done done = run(workers, std::move(batch));
    for (const Drafted& drafted : done.outcome.drafted)
      for (const Candidate& c : drafted.candidates) said.emplace_back(c.token, c.probability);
    EXPECT_EQ(said.size(), 12u);
    for (const auto& [token, probability] : said) {
      EXPECT_LT(token, n_vocab);
      EXPECT_TRUE(probability >= 0.0f && probability <= 1.0f) << probability;
    }
    return said;
  };
  const auto expected = guesses(false, n_vocab, 71);
  for (const Token foreign : {n_vocab + 1, n_vocab + 63, (1 << 24) - 1, INT32_MAX})
    for (const bool lazy : {false, true})
      EXPECT_EQ(guesses(lazy, foreign, 71), expected) << foreign << (lazy ? ", lazy" : "");
  EXPECT_NE(guesses(false, n_vocab, 72), expected) << "what it knows still counts";
}

}  // namespace
}  // namespace sluice

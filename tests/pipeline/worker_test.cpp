#include "pipeline/worker.h"

#include <gtest/gtest.h>

#include "pipeline/recipe.h"
#include "support/harness.h"

namespace sluice {
namespace {

using namespace test;

constexpr SequenceId kText(0);

Row node(Token token, int32_t position, int32_t cell, int32_t parent, uint16_t index) {
  return {.sequence = kText,
          .token = token,
          .position = position,
          .cell = sluice::Cell(cell),
          .parent = sluice::Cell(parent),
          .kind = Row::Kind::kNode,
          .index = index};
}

// Three stages of two layers. Batch 0: a prompt of two tokens; batch 1: the root.
class Stages : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    auto made =
        make_workers(six_layers().model, {.cuts = {{0, 2}, {2, 4}, {4, 6}},
                                          .stage = {.kv = KvType::kF16, .n_cells = 64, .max_rows = 16, .threads = 1},
                                          .memo = GetParam() ? std::make_shared<Memo>() : nullptr});
    ASSERT_TRUE(made);
    workers_ = std::move(*made);
    Row first = node(70, 0, 0, -1, 0), second = node(71, 1, 1, 0, 1);
    first.kind = second.kind = Row::Kind::kPrompt;
    run({.id = BatchId(0), .updates = {Open{kText, {}}}, .rows = {first, second}, .hidden = {}});
    root_ = run({.id = BatchId(1), .updates = {}, .rows = {node(70, 2, 2, 1, 0)}, .hidden = {}});
    ASSERT_EQ(root_.outcome.accepted.size(), 1u);
    next_ = root_.outcome.accepted[0].next;
  }

  // A batch through all stages; computed_ says how many rows each of them computed.
  Worker::Done run(Batch batch) {
    computed_.clear();
    Worker::Done done;
    for (Worker& worker : workers_) {
      done = worker.process(std::move(batch));
      computed_.push_back(done.rows_computed);
      batch = std::move(done.onward);
    }
    return done;
  }

  // After the root: the right token in row 0, a wrong one in row 1, and a child of each in rows 2 and 3.
  Batch level(int32_t id) const {
    const Token wrong = next_ == 5 ? 6 : 5;
    return {.id = BatchId(id),
            .updates = {},
            .rows = {node(next_, 3, 10, 2, 0), node(wrong, 3, 11, 2, 1), node(8, 4, 12, 10, 2), node(8, 4, 13, 11, 3)},
            .hidden = {}};
  }

  std::vector<Worker> workers_;
  std::vector<int32_t> computed_;
  Worker::Done root_;
  Token next_ = kNoToken;
};

TEST_P(Stages, TheLastOneGivesTheTokenOfPlainDecoding) {
  RequestSpec spec;
  spec.prompt = {70, 71, 70};
  spec.max_tokens = 2;
  spec.ignore_end = true;
  const auto expected = plain_decoding(six_layers(), spec);
  EXPECT_EQ(next_, expected[0]);
  const auto done = run(level(2));
  ASSERT_GE(done.outcome.accepted.size(), 1u);
  EXPECT_EQ(done.outcome.accepted[0].cell, sluice::Cell(10));
  EXPECT_EQ(done.outcome.accepted[0].next, expected[1]);
  EXPECT_EQ(done.outcome.accepted.size(), expected[1] == 8 ? 2u : 1u);
}

TEST_P(Stages, RowsOfDeadBranchesAreNotComputedAtTheLast) {
  run(level(2));
  EXPECT_EQ(computed_, (std::vector<int32_t>{4, 4, 2}));
}

TEST_P(Stages, AnAmendmentBeforeTheBatchIsRemembered) {
  for (Worker& worker : workers_) worker.amend({{{BatchId(3), 1}, {BatchId(3), 3}}});
  run({.id = BatchId(2), .updates = {}, .rows = {}, .hidden = {}});  // another one passes meanwhile
  const auto done = run(level(3));
  EXPECT_EQ(computed_, (std::vector<int32_t>{2, 2, 2}));
  ASSERT_FALSE(done.outcome.accepted.empty());
  EXPECT_EQ(done.outcome.accepted[0].cell, sluice::Cell(10));
}

TEST_P(Stages, AnAmendmentMayCatchTheBatchHalfWay) {
  auto done = workers_[0].process(level(2));
  EXPECT_EQ(done.rows_computed, 4);
  for (Worker& worker : workers_) worker.amend({{{BatchId(2), 1}, {BatchId(2), 3}}});
  done = workers_[1].process(std::move(done.onward));
  EXPECT_EQ(done.rows_computed, 2);
  done = workers_[2].process(std::move(done.onward));
  ASSERT_FALSE(done.outcome.accepted.empty());
  EXPECT_EQ(done.outcome.accepted[0].cell, sluice::Cell(10));
}

TEST_P(Stages, AnAmendmentThatComesTooLateOrNamesAnotherBatchDoesNothing) {
  run(level(2));
  for (Worker& worker : workers_) worker.amend({{{BatchId(2), 0}, {BatchId(1), 0}}});
  Batch again = level(3);
  for (Row& row : again.rows) row.position += 1;
  // The same rows again, one position deeper, after the accepted one.
  again.rows = {node(5, 4, 20, 10, 0), node(6, 4, 21, 10, 1)};
  run(std::move(again));
  EXPECT_EQ(computed_[0], 2);
  EXPECT_EQ(computed_[1], 2);
}

TEST_P(Stages, ARowIsNamedByItsIndexEvenIfOthersHaveGone) {
  auto done = workers_[0].process(level(2));
  workers_[1].amend({{{BatchId(2), 1}, {BatchId(2), 3}}});
  done = workers_[1].process(std::move(done.onward));
  ASSERT_EQ(done.onward.rows.size(), 2u);
  EXPECT_EQ(done.onward.rows[1].index, 2);
  workers_[2].amend({{{BatchId(2), 2}}});
  done = workers_[2].process(std::move(done.onward));
  EXPECT_EQ(done.rows_computed, 1);
  ASSERT_EQ(done.outcome.accepted.size(), 1u);
  EXPECT_EQ(done.outcome.accepted[0].cell, sluice::Cell(10));
}

TEST_P(Stages, ABatchWithoutRowsCarriesItsUpdates) {
  const auto done = run({.id = BatchId(2), .updates = {Commit{kText, sluice::Cell(2)}}, .rows = {}, .hidden = {}});
  EXPECT_TRUE(done.outcome.accepted.empty());
  EXPECT_EQ(computed_, (std::vector<int32_t>{0, 0, 0}));
  run(level(3));  // hangs from the committed row
  EXPECT_EQ(computed_[0], 4);
}

INSTANTIATE_TEST_SUITE_P(Compute, Stages, ::testing::Values(false, true),
                         [](const auto& lazy) { return lazy.param ? "Lazy" : "Full"; });

}  // namespace
}  // namespace sluice

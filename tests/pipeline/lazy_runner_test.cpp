// Computing only what somebody asks for gives the same bits as computing everything as it comes.
#include "pipeline/lazy_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "support/harness.h"

namespace sluice {
namespace {

using namespace test;

constexpr SequenceId kText(0);
constexpr int32_t kCells = 40, kMaxRows = 4;

std::unique_ptr<StageRunner> whole_model() {
  const auto& model = six_layers().model;
  auto runner = make_stage_runner(model, {.range = {0, model.hparams().n_layers},
                                          .with_embedding = true,
                                          .with_head = true,
                                          .kv = KvType::kF16,
                                          .n_cells = kCells,
                                          .max_rows = 64,
                                          .threads = 1,
                                          .taps = {}});
  EXPECT_TRUE(runner);
  return std::move(*runner);
}

LazyRunner lazy_model() {
  const auto& model = six_layers().model;
  auto runner = make_stage_runner(model, {.range = {0, model.hparams().n_layers},
                                          .with_embedding = true,
                                          .with_head = true,
                                          .kv = KvType::kF16,
                                          .n_cells = kCells,
                                          .max_rows = kMaxRows,  // so that long paths take several passes
                                          .threads = 1,
                                          .taps = {}});
  EXPECT_TRUE(runner);
  return LazyRunner(std::move(*runner), PathKey{}.with(uint64_t{1}), model.hparams().d_model);
}

// One sequence whose tree grows, is pruned and moves on at random, with hardly enough cells.
class Life {
 public:
  explicit Life(uint64_t seed) : dice_(seed), cells_(kCells), full_(whole_model()), lazy_(lazy_model()) {
    updates_.emplace_back(Open{kText, {}});
    grow({.token = 70, .position = 0, .cell = cells_.take(kText), .parent = {}});
  }

  void run() {
    for (int round = 0; round < 60; ++round) {
      std::vector<Row> rows;
      for (int32_t n = dice_.below(6); n > 0 && cells_.available() > 0; --n) {
        const Row above = alive_[static_cast<size_t>(dice_.below(static_cast<int32_t>(alive_.size())))].row;
        const Row row{.sequence = kText,
                      .token = 60 + dice_.below(8),
                      .position = above.position + 1,
                      .cell = cells_.take(kText),
                      .parent = above.cell};
        rows.push_back(row);
        alive_.push_back({row, {}});
      }
      enter(rows);
      if (dice_.chance(0.6)) compare();
      if (dice_.chance(0.4)) move_on();
    }
  }

  std::map<std::pair<uint64_t, uint64_t>, std::vector<float>> by_key;
  size_t compared = 0;

 private:
  struct Node {
    Row row;
    std::vector<float> logits;  // as they were when it entered
  };

  void grow(Row row) {
    row.sequence = kText;
    alive_.push_back({row, {}});
    enter({row});
  }

  void enter(const std::vector<Row>& rows) {
    full_->enter(updates_, rows);
    lazy_.enter(updates_, rows);
    updates_.clear();
    const auto& h = six_layers().model.hparams();
    std::vector<float> hidden(rows.size() * static_cast<size_t>(h.d_model)),
        logits(rows.size() * static_cast<size_t>(h.n_vocab));
    if (rows.empty()) return;
    full_->run(rows, hidden);
    full_->logits(hidden, logits);
    const size_t v = static_cast<size_t>(h.n_vocab);
    for (size_t i = 0; i < rows.size(); ++i)
      alive_[alive_.size() - rows.size() + i].logits.assign(logits.begin() + static_cast<ptrdiff_t>(i * v),
                                                            logits.begin() + static_cast<ptrdiff_t>((i + 1) * v));
  }

  // Asks for a few of those alive, old or new, ancestors and descendants in any order.
  void compare() {
    std::vector<size_t> chosen;
    for (size_t i = 0; i < alive_.size(); ++i)
      if (dice_.chance(0.2)) chosen.push_back(i);
    if (dice_.chance(0.5)) std::reverse(chosen.begin(), chosen.end());
    std::vector<Row> rows;
    for (const size_t i : chosen) rows.push_back(alive_[i].row);
    if (rows.empty()) return;
    const size_t v = static_cast<size_t>(six_layers().model.hparams().n_vocab);
    std::vector<float> logits(rows.size() * v);
    lazy_.logits(rows, logits);
    for (size_t i = 0; i < chosen.size(); ++i) {
      const std::vector<float> row(logits.begin() + static_cast<ptrdiff_t>(i * v),
                                   logits.begin() + static_cast<ptrdiff_t>((i + 1) * v));
      ASSERT_EQ(row, alive_[chosen[i]].logits) << "at position " << rows[i].position;
      const PathKey key = lazy_.key(rows[i]).value();
      ASSERT_EQ(by_key.try_emplace({key.high, key.low}, row).first->second, row) << "one path, one key, one result";
      ++compared;
    }
  }

  // A child of the root becomes the root: the others' cells are free at once.
  void move_on() {
    const Row root = alive_.front().row;
    const auto next =
        std::find_if(alive_.begin(), alive_.end(), [&](const Node& n) { return n.row.parent == root.cell; });
    if (next == alive_.end() || root.position > kCells / 2) return;
    updates_.emplace_back(Commit{kText, root.cell});
    std::vector<Node> kept = {*next};
    for (const Node& node : std::vector<Node>(alive_.begin() + 1, alive_.end())) {
      if (node.row.cell == kept.front().row.cell) continue;
      const bool lives =
          std::any_of(kept.begin(), kept.end(), [&](const Node& above) { return above.row.cell == node.row.parent; });
      if (lives) {
        kept.push_back(node);
      } else {
        cells_.give_back(kText, node.row.cell);
      }
    }
    alive_ = std::move(kept);
  }

  Dice dice_;
  CellPool cells_;
  std::unique_ptr<StageRunner> full_;
  LazyRunner lazy_;
  std::vector<PathUpdate> updates_;
  std::vector<Node> alive_;  // parents before children; the first one is the root
};

TEST(LazyRunner, GivesTheBitsOfFullForRandomTreesWhoseCellsAreUsedAgain) {
  size_t compared = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Life life(seed);
    ASSERT_NO_FATAL_FAILURE(life.run()) << "seed " << seed;
    compared += life.compared;
  }
  EXPECT_GT(compared, 1000u);
}

TEST(LazyRunner, KeysStandForTheTokensOfThePathAndTheModel) {
  LazyRunner one = lazy_model(), other = lazy_model();
  const std::vector<PathUpdate> open = {Open{kText, {}}};
  const Row first{.sequence = kText, .token = 70, .position = 0, .cell = sluice::Cell(0)};
  Row second{.sequence = kText, .token = 71, .position = 1, .cell = sluice::Cell(1), .parent = sluice::Cell(0)};
  one.enter(open, std::vector<Row>{first, second});
  Row elsewhere = first;
  elsewhere.cell = sluice::Cell(9);
  second.parent = sluice::Cell(9);
  other.enter(open, std::vector<Row>{elsewhere, second});
  EXPECT_EQ(one.key(second), other.key(second)) << "cells don't matter";
  EXPECT_NE(one.key(first), one.key(second));
}

}  // namespace
}  // namespace sluice

// A whole model of which only those rows are computed whose logits somebody asks for.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "compute/stage_runner.h"
#include "pipeline/memo.h"

namespace sluice {

// Rows enter as they would enter a StageRunner; logits() then computes a row, and of its path what has not been
// computed. Cells hold their rows until they are given out again, so a row may be asked for as long as its path lives.
class LazyRunner {
 public:
  // `model`: what tells this model's paths from those of others.
  LazyRunner(std::unique_ptr<StageRunner> runner, PathKey model, int32_t d_model);

  void enter(std::span<const PathUpdate> updates, std::span<const Row> rows);

  // Of an entered row.
  PathKey key(const Row& row) const;

  // logits: [rows, n_vocab]. REQUIRES: the rows have been entered, and nothing on their paths was given out again.
  void logits(std::span<const Row> rows, std::span<float> logits);

  uint64_t take_out_of_range() { return runner_->take_out_of_range(); }
  Spread spread() { return runner_->spread(); }
  Exactness exactness() const { return runner_->exactness(); }

 private:
  struct Entry {
    Row row;
    PathKey key;
    bool computed = false;
  };
  Entry& at(Cell cell) { return cells_[static_cast<size_t>(cell.value)]; }
  const Entry& at(Cell cell) const { return cells_[static_cast<size_t>(cell.value)]; }

  std::unique_ptr<StageRunner> runner_;
  PathKey model_;
  size_t d_model_;
  std::vector<Entry> cells_;
  std::vector<float> hidden_;
};

}  // namespace sluice

// A whole model of which only those rows are computed whose logits somebody asks for.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "pipeline/computation.h"

namespace sluice {

// Rows enter as they would enter a StageRunner; logits() then computes a row, and of its path what has not been
// computed. Cells hold their rows until they are given out again, so a row may be asked for as long as its path lives.
class LazyRunner final : public Computation {
 public:
  // `model`: what tells this model's paths from those of others.
  LazyRunner(std::unique_ptr<StageRunner> runner, PathKey model, int32_t d_model);

  void enter(std::span<const PathUpdate> updates, std::span<const Row> rows);

  void enter(const Batch& batch) override { enter(batch.updates, batch.rows); }
  int32_t run(Batch& batch) override { return static_cast<int32_t>(batch.rows.size()); }

  // Of an entered row.
  std::optional<PathKey> key(const Row& row) const override { return at(row.cell).key; }

  // logits: [rows, n_vocab]. REQUIRES: the rows have been entered, and nothing on their paths was given out again.
  void logits(std::span<const Row> rows, std::span<float> logits);
  void logits(const Batch& batch, std::span<const size_t> rows, std::span<float> logits) override;

  uint64_t take_out_of_range() override { return runner_->take_out_of_range(); }
  Spread spread() override { return runner_->spread(); }
  Exactness exactness() const override { return runner_->exactness(); }

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

#include "pipeline/lazy_runner.h"

#include <algorithm>
#include <utility>

namespace sluice {

LazyRunner::LazyRunner(std::unique_ptr<StageRunner> runner, PathKey model, int32_t d_model)
    : runner_(std::move(runner)),
      model_(model),
      d_model_(static_cast<size_t>(d_model)),
      cells_(static_cast<size_t>(runner_->options().n_cells)) {}

void LazyRunner::enter(std::span<const PathUpdate> updates, std::span<const Row> rows) {
  runner_->enter(updates, rows);
  for (const Row& row : rows) {
    const PathKey above = row.parent.valid() ? at(row.parent).key : model_;
    at(row.cell) = {row, above.with(static_cast<uint64_t>(row.token)), false};
  }
}

void LazyRunner::logits(const Batch& batch, std::span<const size_t> rows, std::span<float> logits) {
  std::vector<Row> asked;
  for (const size_t i : rows) asked.push_back(batch.rows[i]);
  this->logits(asked, logits);
}

void LazyRunner::logits(std::span<const Row> rows, std::span<float> logits) {
  // The rows themselves are computed in any case, since their hidden states aren't kept.
  std::vector<Row> needed(rows.begin(), rows.end());
  for (const Row& row : rows) at(row.cell).computed = true;
  for (const Row& row : rows)
    for (Cell cell = row.parent; cell.valid() && !at(cell).computed; cell = at(cell).row.parent) {
      at(cell).computed = true;
      needed.push_back(at(cell).row);
      needed.back().sequence = row.sequence;  // the one that it came with may have ended, or been cut
    }
  // An ancestor of one row may be another: both are wanted, and their keys and values are written before they are read.
  std::vector<size_t> order(needed.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return needed[a].position < needed[b].position; });
  std::vector<float> wanted(rows.size() * d_model_);
  const size_t chunk = static_cast<size_t>(runner_->options().max_rows);
  for (size_t begin = 0; begin < order.size(); begin += chunk) {
    const auto part = std::span(order).subspan(begin, std::min(chunk, order.size() - begin));
    std::vector<Row> batch;
    for (const size_t i : part) batch.push_back(needed[i]);
    hidden_.resize(batch.size() * d_model_);
    runner_->run(batch, hidden_);
    for (size_t i = 0; i < part.size(); ++i)
      if (part[i] < rows.size())
        std::copy_n(hidden_.begin() + static_cast<ptrdiff_t>(i * d_model_), d_model_,
                    wanted.begin() + static_cast<ptrdiff_t>(part[i] * d_model_));
  }
  runner_->logits(wanted, logits);
}

}  // namespace sluice

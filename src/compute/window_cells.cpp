#include "compute/window_cells.h"

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace sluice {

WindowCells::WindowCells(int32_t n_cells, int32_t window, int32_t kept,
                         std::function<void(Cell first, int32_t n)> forget)
    : window_(static_cast<size_t>(window)),
      kept_(static_cast<size_t>(kept)),
      forget_(std::move(forget)),
      cells_(static_cast<size_t>(n_cells)),
      n_past_(static_cast<size_t>((n_cells + kBlock - 1) / kBlock)) {}

void WindowCells::check_cut(size_t passed, size_t length) const {
  SLUICE_CHECK(passed == 0 || length == 0 || length >= passed + window_,
               "a sequence is cut to where its window has been forgotten");
}

void WindowCells::before(const PathUpdate& update, const Paths& paths) {
  const auto* truncate = std::get_if<Truncate>(&update);
  if (truncate == nullptr && !std::holds_alternative<Close>(update)) return;
  const auto found = passed_.find(sequence_of(update));
  if (found == passed_.end()) return;
  size_t& passed = found->second;
  const auto path = paths.committed(found->first);
  const size_t length = truncate != nullptr ? static_cast<size_t>(truncate->length) : 0;
  check_cut(passed, length);
  for (size_t i = std::max(length, passed); i < path.size(); ++i) leave(path[i], paths.holders(path[i]) > 1);
  passed = std::min(passed, length);
  if (truncate == nullptr) passed_.erase(found);
}

void WindowCells::after(const PathUpdate& update, const Paths& paths) {
  const SequenceId sequence = sequence_of(update);
  if (std::holds_alternative<Open>(update)) passed_[sequence] = 0;
  if (const auto* fork = std::get_if<Fork>(&update)) {
    const auto path = paths.committed(sequence);
    const size_t passed = path.empty() ? 0 : passed_.at(fork->from);
    check_cut(passed, path.size());
    passed_[sequence] = passed;
    for (const Cell cell : path.subspan(passed)) ++at(cell).readers;
  }
  if (const auto* commit = std::get_if<Commit>(&update)) {
    ++at(commit->cell).readers;
    go_on(sequence, paths);
  }
}

void WindowCells::entered(const Row& row, const Paths& paths) {
  if (std::exchange(at(row.cell).past, false)) --n_past_[static_cast<size_t>(row.cell.value / kBlock)];
  if (row.kind != Row::Kind::kPrompt) return;
  ++at(row.cell).readers;
  go_on(row.sequence, paths);
}

void WindowCells::go_on(SequenceId sequence, const Paths& paths) {
  const auto path = paths.committed(sequence);
  for (size_t& passed = passed_[sequence]; passed + window_ + kept_ < path.size(); ++passed) leave(path[passed], true);
}

// One sequence less that reads it; is_held: some sequence has its token.
void WindowCells::leave(Cell cell, bool is_held) {
  if (--at(cell).readers > 0 || !is_held) return;
  at(cell).past = true;
  const int32_t block = cell.value / kBlock, first = block * kBlock;
  const int32_t n = std::min(kBlock, static_cast<int32_t>(cells_.size()) - first);
  if (++n_past_[static_cast<size_t>(block)] < n) return;
  for (int32_t i = first; i < first + n; ++i) cells_[static_cast<size_t>(i)].lost = true;
  forget_(Cell(first), n);
}

}  // namespace sluice

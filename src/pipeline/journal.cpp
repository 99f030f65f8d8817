#include "pipeline/journal.h"

#include <algorithm>

namespace sluice {

Journal::Journal(int32_t n_cells, int32_t state, int64_t bytes)
    : state_(static_cast<size_t>(state)),
      n_states_(state == 0 ? 0
                           : std::min(static_cast<size_t>(n_cells),
                                      static_cast<size_t>(bytes) / (static_cast<size_t>(state) * sizeof(float)))),
      states_(n_states_ * state_ * sizeof(float)),
      written_(static_cast<size_t>(n_cells)) {}

// What is computed again is the same, and so is what hangs from it.
bool Journal::finds(const Row& row) {
  Written& written = written_[static_cast<size_t>(row.cell.value)];
  const bool is_there =
      written.token == row.token && written.parent == row.parent && written.parents_times == times(row.parent);
  const bool sends = state_ > 0;
  if (is_there && written.life < life_ && row.kind == Row::Kind::kPrompt && (!sends || has_place(row.cell)))
    return true;
  if (!is_there) written = {row.token, row.parent, times(row.parent), written.times + 1};
  written.life = life_;
  return false;
}

void Journal::keep(const Row& row, std::span<const float> state) {
  if (has_place(row.cell)) std::ranges::copy(state, at(row.cell).begin());
}

}  // namespace sluice

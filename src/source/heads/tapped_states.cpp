#include "source/heads/tapped_states.h"

#include <algorithm>

namespace sluice {

void TappedStates::receive(const Taps& taps) {
  for (size_t r = 0; r < taps.rows.size(); ++r) {
    const Row& row = taps.rows[r];
    Entry& entry = cells_[row.cell];
    if (taps.batch < entry.batch) continue;
    if (entry.batch < taps.batch)
      entry = {.batch = taps.batch, .sequence = row.sequence, .token = row.token, .states = {}};
    for (size_t i = 0; i < taps.layers.size(); ++i) {
      const int32_t layer = taps.layers[i];
      if (row.kind == Row::Kind::kPrompt && std::find(certain_.begin(), certain_.end(), layer) == certain_.end())
        continue;
      const auto begin = taps.states.begin() + static_cast<ptrdiff_t>((i * taps.rows.size() + r) * d_);
      entry.states[layer].assign(begin, begin + static_cast<ptrdiff_t>(d_));
    }
  }
}

const float* TappedStates::state(Cell cell, int32_t layer) const {
  const auto entry = cells_.find(cell);
  if (entry == cells_.end()) return nothing_.data();
  const auto state = entry->second.states.find(layer);
  return state == entry->second.states.end() ? nothing_.data() : state->second.data();
}

Token TappedStates::token(Cell cell) const {
  const auto entry = cells_.find(cell);
  return entry == cells_.end() ? 0 : entry->second.token;
}

}  // namespace sluice

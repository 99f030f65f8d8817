#include "source/heads/paired_head.h"

#include <algorithm>

namespace sluice {

void PairedHead::run(const Batch& batch, std::vector<float>& hidden) {
  const size_t d = layers_->d_model(), n_guesses = guesses();
  Rows rows;
  for (const Refresh& r : batch.refreshes) {
    add_known(rows, r.sequence, r.position, r.own, r.token, &r.cell);
    if (r.last) states_.forget(r.cell);
  }
  std::vector<std::optional<size_t>> asked;  // where a node's states begin, if it has a row
  std::vector<Cell> cells;
  for (const Row& row : batch.rows) {
    const Feature* feature = feature_of(batch, row);
    const bool is_node = row.kind == Row::Kind::kNode;
    const size_t before = rows.rows.size();
    if (feature != nullptr) {
      add_known(rows, row.sequence, row.position, row.cell, row.token, &feature->cell);
      if (feature->last) states_.forget(feature->cell);
    } else if (const auto guess = guessed_.find(row.parent); is_node && guess != guessed_.end()) {
      std::vector<float> embedding(d);
      layers_->embed(row.token, embedding.data());
      add(rows, head_row(row), embedding.data(), guess->second.data());
    }
    if (!is_node) continue;
    const bool there = rows.rows.size() > before;
    if (there) add_further(rows, static_cast<int32_t>(asked.size()));
    asked.push_back(there ? std::optional(before) : std::nullopt);
    cells.push_back(row.cell);
  }
  const std::vector<float> states = compute(rows);
  hidden.assign(asked.size() * n_guesses * d, 0.0f);
  for (size_t i = 0; i < asked.size(); ++i) {
    guessed_.erase(cells[i]);
    if (!asked[i]) continue;
    const auto begin = states.begin() + static_cast<ptrdiff_t>(*asked[i] * d);
    std::copy_n(begin, n_guesses * d, hidden.begin() + static_cast<ptrdiff_t>(i * n_guesses * d));
    guessed_[cells[i]] = handed_on({begin, begin + static_cast<ptrdiff_t>(d)});
  }
}

void PairedHead::add_known(Rows& rows, SequenceId sequence, int32_t position, Cell own, Token token,
                           const Cell* before) {
  if (position == 0 || before == nullptr) return;
  std::vector<float> embedding(layers_->d_model());
  layers_->embed(token, embedding.data());
  add(rows, head_row(sequence, position, own), embedding.data(), feature(*before).data());
}

void PairedHead::add(Rows& rows, BlockRow row, const float* embedding, const float* state) const {
  const size_t d = layers_->d_model();
  rows.rows.push_back(std::move(row));
  rows.embedding.insert(rows.embedding.end(), embedding, embedding + d);
  rows.state.insert(rows.state.end(), state, state + d);
}

}  // namespace sluice

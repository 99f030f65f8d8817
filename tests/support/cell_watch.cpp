#include "support/cell_watch.h"

namespace sluice::test {

int64_t& CellWatch::at(Cells& cells, Cell cell) {
  const auto i = static_cast<size_t>(cell.value);
  if (i >= cells.size()) cells.resize(i + 1, kNothing);
  return cells[i];
}

void CellWatch::submitted(ModelId model, const Batch& batch) {
  Cells& given = given_[model];
  for (const Row& row : batch.rows) {
    const auto entry = static_cast<int64_t>(entries_.size());
    entries_.push_back({row.cell, row.parent.valid() ? at(given, row.parent) : kNothing});
    at(given, row.cell) = entry;
    rows_[{model, batch.id, row.index}] = entry;
  }
}

void CellWatch::computed(ModelId model, StageId stage, const Batch& batch) {
  Cells& held = held_[{model, stage}];
  for (const Row& row : batch.rows) {
    const auto found = rows_.find({model, batch.id, row.index});
    const int64_t entry = found == rows_.end() ? kNothing : found->second;
    if (entry == kNothing && trouble_.empty()) trouble_ = "a row that never entered";
    if (entry == kNothing) continue;
    for (int64_t read = entries_[static_cast<size_t>(entry)].parent; read != kNothing;
         read = entries_[static_cast<size_t>(read)].parent) {
      ++reads_;
      const Cell cell = entries_[static_cast<size_t>(read)].cell;
      if (at(held, cell) == read || !trouble_.empty()) continue;
      trouble_ = "stage " + std::to_string(stage.value) + " of model " + std::to_string(model.value) +
                 " computed row " + std::to_string(row.index) + " of batch " + std::to_string(batch.id.value) +
                 " over cell " + std::to_string(cell.value) + ", which holds another token by then";
    }
    at(held, row.cell) = entry;
  }
}

}  // namespace sluice::test

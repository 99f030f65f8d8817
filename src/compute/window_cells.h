// Cells that layers with a window will not read again, so that their memory can be had back.
//
// A row sees `window` positions, so of a long text only its end is of use there. A sequence may be cut back, for a next
// turn that goes on otherwise: so some positions before the window stay, and a sequence is not cut to where others
// would be missing. A cell is past when every sequence that has committed its token has gone on that far; blocks of
// cells that are past are forgotten. Nothing else changes: rows refer to cells as before, and layers that see
// everything keep them all.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "compute/paths.h"
#include "wire/batch.h"

namespace sluice {

class WindowCells {
 public:
  static constexpr int32_t kBlock = 32;  // as many side by side as a sequence is given at a time

  // forget(first, n): of the cells first … first + n - 1 nobody reads what is there now. kept: positions before the
  // window of a sequence's next token that are not past.
  WindowCells(int32_t n_cells, int32_t window, int32_t kept, std::function<void(Cell first, int32_t n)> forget);

  // Before and after `paths` follows an update. REQUIRES: nothing is cut or forked to where positions in the window of
  // the token behind are past, but to nothing.
  void before(const PathUpdate& update, const Paths& paths);
  void after(const PathUpdate& update, const Paths& paths);
  // After a row has entered: its cell has another token now.
  void entered(const Row& row, const Paths& paths);

  // Whether the cell was forgotten and nothing has been written there since.
  bool is_lost(Cell cell) const { return at(cell).lost; }
  void written(Cell cell) { at(cell).lost = false; }

 private:
  struct Entry {
    uint16_t readers = 0;  // sequences that have committed it and are not past it
    bool past = false;
    bool lost = false;
  };
  Entry& at(Cell cell) { return cells_[static_cast<size_t>(cell.value)]; }
  const Entry& at(Cell cell) const { return cells_[static_cast<size_t>(cell.value)]; }
  void check_cut(size_t passed, size_t length) const;
  void go_on(SequenceId sequence, const Paths& paths);
  void leave(Cell cell, bool is_held);

  size_t window_, kept_;
  std::function<void(Cell first, int32_t n)> forget_;
  std::vector<Entry> cells_;
  std::vector<int32_t> n_past_;                    // by block
  std::unordered_map<SequenceId, size_t> passed_;  // positions of each sequence, the first ones, that it is past
};

}  // namespace sluice

// What a stage has computed, by cell: when another stage of its pipeline is lost, the text comes again as a prompt, and
// what still lies in this stage's cells need not be computed again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "compute/memory.h"
#include "wire/batch.h"

namespace sluice {

// Of each cell it knows the token whose keys and values are there, the cell of the token before, and how many times
// that one had been written. So if a row finds its own token and parent there, it finds all of its path, and no text is
// compared. Beside it lie the states that the stage has sent on, which the next one may need.
//
// Only what was computed before the last begin_anew() is found, so that a pipeline in which nothing fails computes
// whatever it is sent. Thread safety: none.
class Journal {
 public:
  // state: floats of a row that are sent on; 0: the last stage, which sends none. bytes: for states, of which those of
  // the first cells are kept. REQUIRES: cells of rows are below n_cells.
  Journal(int32_t n_cells, int32_t state, int64_t bytes);
  // What it may take at the most, for n_cells.
  static int64_t bytes_of(int32_t n_cells, int32_t state) { return int64_t{n_cells} * state * int64_t{sizeof(float)}; }

  // The stage comes to a row, after those before it on its path. Whether it need not compute it, since its keys and
  // values are in its cell and its state is here; otherwise it computes it now.
  bool finds(const Row& row);
  // Of a row that was found. [state]
  std::span<const float> state(const Row& row) const { return at(row.cell); }
  // Of one that has been computed. [state]
  void keep(const Row& row, std::span<const float> state);

  // Stages were lost: what comes now has perhaps been computed.
  void begin_anew() { ++life_; }
  // What lies in the cells is of no use any more.
  void clear() { written_.assign(written_.size(), {}); }

 private:
  struct Written {
    Token token = kNoToken;
    Cell parent;
    uint64_t parents_times = 0;  // that the parent's cell had been written
    uint64_t times = 0;          // that this one has; 0: never
    uint32_t life = 0;           // in which it was computed last
  };
  uint64_t times(Cell cell) const { return cell.valid() ? written_[static_cast<size_t>(cell.value)].times : 0; }
  bool has_place(Cell cell) const { return static_cast<size_t>(cell.value) < n_states_; }
  std::span<float> at(Cell cell) const {
    return {states_.as<float>() + static_cast<size_t>(cell.value) * state_, state_};
  }

  size_t state_;
  size_t n_states_;  // cells whose states are kept
  Memory states_;    // [n_states, state]
  std::vector<Written> written_;
  uint32_t life_ = 0;
};

}  // namespace sluice

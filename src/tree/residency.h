// What one model has done with a sequence and the nodes of its tree, and where their keys and values lie.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace sluice {

// Cells 0 … size - 1 of a model, the same at every stage, and how many hold each: nodes, and sequences that have
// committed its token. A cell is free if and only if nobody holds it. It may then be given out again at once: batches
// are FIFO, so rows that refer to it have passed before it is written anew.
//
// Memory is read in lines and pages, so the cells of a sequence should lie side by side: a sequence is given a block of
// them at a time, and what it gives back stays its own until it ends. Only when no whole block is left are single ones
// taken from where they are. Each of the calls takes the time of a look-up among sequences and blocks.
class CellPool {
 public:
  static constexpr int32_t kBlock = 32;

  explicit CellPool(int32_t size);
  size_t available() const { return available_; }  // to any sequence
  // How many holders cells have beside their first.
  size_t shared() const { return shared_; }
  // REQUIRES: available() > 0. The one that the sequence gave back last comes first, so that a tree stays in a few
  // cache lines.
  Cell take(SequenceId sequence);
  void share(Cell cell);                           // one holder more. REQUIRES: it has one
  void give_back(SequenceId sequence, Cell cell);  // one less. REQUIRES: the same
  int32_t holders(Cell cell) const { return holders_[place(cell)]; }
  void close(SequenceId sequence);  // what it was the last to give back is everybody's again

 private:
  // What is free to one sequence.
  struct Own {
    std::vector<Cell> cells;
    bool stocked = false;  // among stocked_
  };

  static size_t place(Cell cell) { return static_cast<size_t>(cell.value); }
  void stock(SequenceId sequence, Own& own);
  void scatter(Cell cell);
  void take_block(std::vector<Cell>& free);
  void take_from_others(std::vector<Cell>& free);

  int32_t size_;
  size_t available_, shared_ = 0;
  std::vector<int32_t> holders_;          // by cell, how many
  std::vector<int32_t> whole_;            // blocks of which every cell is free and nobody's
  std::vector<std::vector<Cell>> loose_;  // by block: those cells of others that are
  std::set<int32_t> scattered_;           // the blocks of which some cells are loose
  std::unordered_map<SequenceId, Own> own_;
  std::set<SequenceId> stocked_;  // the sequences to which something may be
};

// A node that isn't here waits: it has not entered the model.
struct Resident {
  Cell cell;
  BatchId batch;     // the batch in which it entered
  uint16_t row = 0;  // its index there
};

class Residency {
 public:
  size_t settled = 0;  // of a head: how many of the committed tokens will not be computed again
  // Where layers fold: so many tokens were committed when a copy was made, and will be when the next one is. 0: none.
  size_t checkpoint = 0, next_checkpoint = 0;
  // The one that there is when workers know of so many committed tokens.
  size_t checkpoint_within(size_t known) const {
    return next_checkpoint > 0 && next_checkpoint <= known ? next_checkpoint : checkpoint;
  }
  // The sequence goes on otherwise.
  void keep_checkpoint(size_t known) {
    checkpoint = checkpoint_within(known);
    next_checkpoint = 0;
  }

  // So many tokens it, or the one that it comes from, has had committed at the most since it began with nothing.
  size_t reached = 0;

  // committed()[i] holds token i of the sequence; those behind have not entered yet, or not been verified.
  std::span<const Cell> committed() const { return committed_; }
  void commit(Cell cell) {
    committed_.push_back(cell);
    reached = std::max(reached, committed_.size());
  }
  void cut(size_t length);  // REQUIRES: no longer than committed()

  bool entered(NodeId node) const { return find(node) != nullptr; }
  const Resident* find(NodeId node) const {
    const int64_t place = int64_t{node.value} - first_;
    if (place < 0 || place >= std::ssize(slots_)) return nullptr;
    const Resident& there = slots_[static_cast<size_t>(place)];
    return there.cell.valid() ? &there : nullptr;
  }
  void enter(NodeId node, Resident resident);  // REQUIRES: node and resident.cell are valid, !entered(node)
  void leave(NodeId node);
  void clear() { slots_.clear(), n_entered_ = 0; }
  size_t n_entered() const { return n_entered_; }  // nodes that are here
  std::vector<Cell> cells() const;                 // theirs

 private:
  std::vector<Cell> committed_;
  // By the node's id less first_: ids rise, so those that are here are close to one another.
  std::deque<Resident> slots_;
  int32_t first_ = 0;
  size_t n_entered_ = 0;
};

}  // namespace sluice

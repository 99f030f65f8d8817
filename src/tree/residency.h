// What one model has done with a sequence and the nodes of its tree, and where their keys and values lie.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace sluice {

// Cells 0 … size - 1 of a model, the same at every stage. A cell may be given out again as soon as nothing that is
// still to enter refers to it: batches are FIFO, so older rows have passed before it is written again.
//
// Memory is read in lines and pages, so the cells of a sequence should lie side by side: a sequence is given a block of
// them at a time, and what it gives back stays its own until it ends. Only when no whole block is left are single ones
// taken from where they are. Each of the calls takes the time of a look-up among sequences and blocks.
class CellPool {
 public:
  static constexpr int32_t kBlock = 32;

  explicit CellPool(int32_t size);
  size_t available() const { return available_; }  // to any sequence
  // REQUIRES: available() > 0. The one that the sequence gave back last comes first, so that a tree stays in a few
  // cache lines.
  Cell take(SequenceId sequence);
  void give_back(SequenceId sequence, Cell cell);
  void close(SequenceId sequence);  // what it has given back is everybody's again

 private:
  void share(Cell cell);
  void take_block(std::vector<Cell>& free);
  void take_from_others(std::vector<Cell>& free);

  int32_t size_;
  size_t available_;
  std::vector<int32_t> whole_;                   // blocks of which every cell is free and nobody's
  std::vector<std::vector<Cell>> loose_;         // by block: those cells of others that are
  std::set<int32_t> scattered_;                  // the blocks of which some cells are loose
  std::map<SequenceId, std::vector<Cell>> own_;  // what is free to one sequence
  std::set<SequenceId> holders_;                 // the sequences to which something is
};

// A node that isn't here waits: it has not entered the model.
struct Resident {
  Cell cell;
  BatchId batch;     // the batch in which it entered
  uint16_t row = 0;  // its index there
};

class Residency {
 public:
  std::vector<Cell> committed;  // committed[i] holds token i of the sequence; not all of them may have entered yet
  size_t settled = 0;           // of a head: how many of the committed tokens will not be computed again

  bool entered(NodeId node) const { return residents_.contains(node); }
  const Resident* find(NodeId node) const {
    const auto at = residents_.find(node);
    return at == residents_.end() ? nullptr : &at->second;
  }
  void enter(NodeId node, Resident resident) { residents_.emplace(node, resident); }
  void leave(NodeId node) { residents_.erase(node); }
  void clear() { residents_.clear(); }
  size_t size() const { return residents_.size(); }
  auto begin() const { return residents_.begin(); }
  auto end() const { return residents_.end(); }

 private:
  std::unordered_map<NodeId, Resident> residents_;
};

}  // namespace sluice

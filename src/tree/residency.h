// What one model has done with a sequence and the nodes of its tree, and where their keys and values lie.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sluice {

// Cells 0 … size - 1 of a model, the same at every stage. A cell may be given out again as soon as nothing that is
// still to enter refers to it: batches are FIFO, so older rows have passed before it is written again.
class CellPool {
 public:
  explicit CellPool(int32_t size) {
    free_.reserve(static_cast<size_t>(size));
    for (int32_t cell = size - 1; cell >= 0; --cell) free_.emplace_back(cell);
  }
  size_t available() const { return free_.size(); }
  // REQUIRES: available() > 0. The one given back last comes first, so that a tree stays in a few cache lines.
  Cell take() {
    SLUICE_CHECK(!free_.empty(), "a cell is left");
    const Cell cell = free_.back();
    free_.pop_back();
    return cell;
  }
  void give_back(Cell cell) { free_.push_back(cell); }

 private:
  std::vector<Cell> free_;
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

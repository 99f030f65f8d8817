// The target's states as they come to a head, by the target's cells.
#pragma once

#include <unordered_map>
#include <vector>

#include "wire/report.h"

namespace sluice {

class TappedStates {
 public:
  // `certain`: of prompt rows only these layers are kept.
  TappedStates(size_t d_model, std::vector<int32_t> certain) : d_(d_model), certain_(std::move(certain)) {}

  // A cell's newest token counts: what comes late of an older one is left out.
  void receive(const Taps& taps);
  void forget(Cell cell) { cells_.erase(cell); }
  void forget(SequenceId sequence) {
    std::erase_if(cells_, [sequence](const auto& cell) { return cell.second.sequence == sequence; });
  }

  // [d_model] after layer `layer`. Zeros if there is none: then the question came for a token that is dead, whose cell
  // has been given to another.
  const float* state(Cell cell, int32_t layer) const;
  Token token(Cell cell) const;
  size_t size() const { return cells_.size(); }

 private:
  struct Entry {
    BatchId batch;
    SequenceId sequence;
    Token token = kNoToken;
    std::unordered_map<int32_t, std::vector<float>> states;  // by layer
  };
  size_t d_;
  std::vector<int32_t> certain_;
  std::vector<float> nothing_ = std::vector<float>(d_);
  std::unordered_map<Cell, Entry> cells_;
};

}  // namespace sluice

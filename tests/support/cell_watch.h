// Follows which token each cell of each stage holds, so that no row reads a cell that has become another's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "wire/batch.h"

namespace sluice::test {

// A row that enters reads the cells of its path, which hold the tokens of that path then, as the coordinator gave them
// out. At each stage that computes the row they must hold the same.
class CellWatch {
 public:
  void submitted(ModelId model, const Batch& batch);
  // batch: the rows that the stage has computed, in order.
  void computed(ModelId model, StageId stage, const Batch& batch);
  // The model's stages are others now, which hold nothing.
  void replaced(ModelId model) {
    std::erase_if(held_, [model](const auto& held) { return held.first.first == model; });
  }

  int64_t reads() const { return reads_; }
  const std::string& trouble() const { return trouble_; }  // the first; empty: none

 private:
  static constexpr int64_t kNothing = -1;
  struct Entry {  // a row that has entered
    Cell cell;
    int64_t parent = kNothing;  // the entry whose token is before it
  };
  using Cells = std::vector<int64_t>;  // the entry that each holds
  static int64_t& at(Cells& cells, Cell cell);

  std::vector<Entry> entries_;
  std::map<ModelId, Cells> given_;  // by the coordinator
  std::map<std::pair<ModelId, StageId>, Cells> held_;
  std::map<std::tuple<ModelId, BatchId, uint16_t>, int64_t> rows_;
  int64_t reads_ = 0;
  std::string trouble_;
};

}  // namespace sluice::test

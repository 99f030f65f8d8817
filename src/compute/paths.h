// Which cells a row attends to: the committed cells of its sequence, then its ancestors in the tree, then itself.
#pragma once

#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "wire/batch.h"

namespace sluice {

// The cells of one row's path in the order of their positions: `committed`, then `branch`.
struct Path {
  std::span<const Cell> committed;  // valid until the next update
  std::vector<Cell> branch;

  int64_t size() const { return static_cast<int64_t>(committed.size() + branch.size()); }
  Cell operator[](int64_t position) const {
    const auto i = static_cast<size_t>(position);
    return i < committed.size() ? committed[i] : branch[i - committed.size()];
  }
};

// A row in an attention: where its keys and values go, by which position they are turned, and what it sees.
struct BlockRow {
  Cell cell;
  int32_t position = 0;
  Path path;
};

// So many leading positions of both lie in the same committed cells.
int64_t in_common(const Path& a, const Path& b);

// Whether `part` is what `whole` begins with, or all of it.
bool begins_with(const Path& whole, const Path& part);

// Invariant: the committed cell at index i of a sequence holds its token at position i. A committed cell may belong to
// several sequences with the same prefix; it is not written anew as long as it belongs to one.
class Paths {
 public:
  explicit Paths(int32_t n_cells) : cells_(static_cast<size_t>(n_cells)) {}

  void apply(const PathUpdate& update);

  // The row's cell now holds its token; a prompt row is committed. REQUIRES: as StageRunner::enter.
  void enter(const Row& row);

  // What a sequence has committed. Valid until the next update. REQUIRES: it is open.
  std::span<const Cell> committed(SequenceId sequence) const { return committed_.at(sequence); }
  // Sequences that have committed the token in the cell.
  int32_t holders(Cell cell) const { return entry(cell).holders; }
  // Whether the cell's token is not committed, and goes on from all that its sequence has committed.
  bool goes_on_from_the_end(Cell cell) const;

  // The path of an entered row, up to and including itself. Reuses the memory of `path`.
  void find(const Row& row, Path& path) const;

 private:
  struct Entry {
    SequenceId sequence;
    int32_t position = -1;
    Cell parent;
    int32_t holders = 0;  // sequences that have committed it
  };
  bool is_committed(SequenceId sequence, Cell cell, int32_t position) const;
  void commit(SequenceId sequence, Cell cell);
  void fork(const Fork& fork);
  void cut(std::vector<Cell>& path, size_t length);
  const Entry& entry(Cell cell) const;

  std::vector<Entry> cells_;
  std::unordered_map<SequenceId, std::vector<Cell>> committed_;
};

}  // namespace sluice

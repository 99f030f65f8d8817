// What layers that fold their past into a state know of each sequence and each node of a tree.
//
// A sequence has one state, that of its committed tokens, and perhaps a copy of an earlier one, its checkpoint. What a
// row that is not committed adds to it is kept by its cell, as an update: a change of rank one a head, and the row's
// part in later convolutions. The state behind a node is the committed one with the updates of its path; it is made
// anew for each batch, in which paths that have ancestors in common go through those once. So a node costs no state (a
// megabyte a layer), nothing moves when nodes are committed or die, and the bits are those of one token after another:
// an update is added as it was when its row was computed.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "compute/memory.h"
#include "compute/paths.h"
#include "model/model_file.h"
#include "wire/batch.h"

namespace sluice {

// Thread safety: none; what it has prepared may be read by several threads.
class FoldedStates {
 public:
  // Copies of a head's state that a thread keeps where paths part. Of fewer more updates are added again.
  static constexpr int32_t kCopies = 8;

  // Of a stage with so many such layers.
  FoldedStates(const DeltaNetParameters& shape, int32_t n_layers, int32_t n_cells, int32_t n_copies = kCopies);

  // REQUIRES: nothing is cut or forked to less than what has been folded, but to the
  // checkpoint, or to nothing.
  void apply(const PathUpdate& update);
  // The row's cell has another token now.
  void enter(const Row& row);

  // A token's part in a convolution.
  struct Input {
    enum class Of : uint8_t { kNobody, kRow, kUpdate, kState } of = Of::kNobody;
    int32_t at = 0;  // the row's number, the update's, or the place in the state's tail
  };
  // A head's state becomes that with one more token: a row that is computed, or an update that is added.
  struct Step {
    int32_t row = -1;     // or none
    int32_t update = -1;  // where what it adds is kept, if it is
    int32_t from = 0, to = 0;
    bool is_own = true;  // otherwise the row is another sequence's, with the same beginning, who keeps what it adds
  };
  // Places of states: copies from 0 on, and:
  static constexpr int32_t kCommitted = -1, kZeros = -2;
  struct Work {
    SequenceId sequence;
    std::vector<Step> steps;
    std::vector<Input> tail;  // [taps - 1] as it will be; empty: the committed state stays
    float* state = nullptr;   // of all layers
    // After so many steps the committed state is copied to the checkpoint, and these go into its tail. 0: never.
    size_t steps_to_checkpoint = 0;
    std::vector<Input> checkpoint_tail;
    float* checkpoint = nullptr;  // as `state`
    int32_t folded = 0;           // tokens in it afterwards
  };

  // How these rows are computed, which lie in these places. REQUIRES: as StageRunner::run.
  void prepare(std::span<const Row> rows, std::span<const BlockRow> places, const Paths& paths);
  std::span<const Work> work() const { return work_; }
  const Work& work_of(int64_t row) const { return work_[static_cast<size_t>(work_of_[static_cast<size_t>(row)])]; }
  // Whose inputs go into row's convolution before its own, oldest first: [taps - 1].
  std::span<const Input> inputs(int64_t row) const {
    return std::span(inputs_).subspan(static_cast<size_t>(row) * n_before_, n_before_);
  }
  // Where what the row adds is kept, or -1.
  int32_t update_of(int64_t row) const { return updates_of_rows_[static_cast<size_t>(row)]; }
  // They have been computed: drops what is folded, and what died.
  void finish(const Paths& paths);

  int32_t n_copies() const { return n_copies_; }

  // Of a layer. state: [value_heads, head_dim, head_dim], value by value; tail: [taps - 1, mixed_width].
  float* state(const Work& work, int32_t layer) const { return work.state + layer * layer_floats_; }
  float* tail(const Work& work, int32_t layer) const { return state(work, layer) + state_floats_; }
  float* checkpoint(const Work& work, int32_t layer) const { return work.checkpoint + layer * layer_floats_; }
  float* checkpoint_tail(const Work& work, int32_t layer) const { return checkpoint(work, layer) + state_floats_; }
  // An update's: mixed_width, key_width and value_width wide, and of each value head what it kept.
  float* input(int32_t update, int32_t layer) const { return update_at(update, layer); }
  float* keys(int32_t update, int32_t layer) const { return input(update, layer) + shape_.mixed_width(); }
  float* changes(int32_t update, int32_t layer) const { return keys(update, layer) + shape_.key_width(); }
  float* kept(int32_t update, int32_t layer) const { return changes(update, layer) + shape_.value_width(); }

  // Bytes of a sequence's state, and of an update, in one layer.
  static int64_t state_bytes(const DeltaNetParameters& shape);
  static int64_t update_bytes(const DeltaNetParameters& shape);

 private:
  struct Sequence {
    int32_t folded = 0;         // committed tokens that are in the state
    Memory state;               // [layers][state, tail], when something is
    int32_t checkpoint_at = 0;  // tokens in the other one; 0: there is none
    Memory checkpoint;
    std::vector<int32_t> checkpoints_to_come;  // several only where what was entered was not computed before it was cut
  };
  struct Node {
    Cell cell;
    std::vector<int32_t> children = {};
  };
  static constexpr int32_t kUpdatesOfChunk = 16;
  float* update_at(int32_t update, int32_t layer) const {
    const auto chunk = static_cast<size_t>(update / kUpdatesOfChunk);
    return chunks_[chunk].as<float>() + ((update % kUpdatesOfChunk) * int64_t{n_layers_} + layer) * update_floats_;
  }
  int32_t& update_in(Cell cell) { return updates_[static_cast<size_t>(cell.value)]; }
  int32_t& row_in(Cell cell) { return rows_[static_cast<size_t>(cell.value)]; }
  int32_t take_update(Cell cell);
  void drop_update(Cell cell);
  Memory take_state();
  void give_back(Memory state);
  static void cut(Sequence& sequence, int32_t length);
  void fold(Work& work, Sequence& sequence, std::span<const Row> rows, const Paths& paths);
  std::vector<Input> tail_of(std::span<const Cell> path, int32_t folded);
  void branch(const Work& work, const Path& path);
  void descend(Work& work, int32_t node, int32_t place);
  // That of a path's token, of which the first `folded` are in the state.
  template <class CellAt>
  Input input_at(int32_t position, int32_t folded, CellAt&& cell_at);
  void find_inputs(size_t row, const Path& path, int32_t folded);

  DeltaNetParameters shape_;
  int32_t n_layers_, n_copies_;
  size_t n_before_;  // taps - 1
  int64_t state_floats_, layer_floats_, update_floats_;
  std::unordered_map<SequenceId, Sequence> sequences_;
  std::vector<Memory> spare_;

  std::vector<int32_t> updates_;  // [cells], or -1
  std::vector<Cell> held_;        // those that have one
  std::vector<int32_t> free_;
  std::vector<Memory> chunks_;  // [update][layer]

  // Of the rows at hand.
  std::vector<Work> work_;
  std::vector<int32_t> work_of_;  // [rows]
  std::vector<Input> inputs_;
  std::vector<int32_t> updates_of_rows_;
  std::vector<int32_t> rows_;     // [cells]: the row that computes it, or -1
  std::vector<Cell> in_rows_;     // those that are computed
  std::vector<Node> nodes_;       // of one sequence, the first is its committed end
  std::vector<int32_t> node_in_;  // [cells], or -1
  std::vector<Cell> branch_;      // from the committed end to the node that is descended from
  std::vector<int32_t> free_copies_;
};

}  // namespace sluice

#include "compute/folded_states.h"

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace sluice {

namespace {

int64_t state_floats(const DeltaNetParameters& shape) { return shape.value_width() * shape.head_dim; }
int64_t layer_floats(const DeltaNetParameters& shape) {
  return state_floats(shape) + (shape.n_taps - 1) * shape.mixed_width();
}
int64_t update_floats(const DeltaNetParameters& shape) {
  return shape.mixed_width() + shape.key_width() + shape.value_width() + shape.n_value_heads;
}

}  // namespace

int64_t FoldedStates::state_bytes(const DeltaNetParameters& shape) {
  return layer_floats(shape) * static_cast<int64_t>(sizeof(float));
}
int64_t FoldedStates::update_bytes(const DeltaNetParameters& shape) {
  return update_floats(shape) * static_cast<int64_t>(sizeof(float));
}

FoldedStates::FoldedStates(const DeltaNetParameters& shape, int32_t n_layers, int32_t n_cells, int32_t n_copies)
    : shape_(shape),
      n_layers_(n_layers),
      n_copies_(n_copies),
      n_before_(static_cast<size_t>(shape.n_taps - 1)),
      state_floats_(state_floats(shape)),
      layer_floats_(layer_floats(shape)),
      update_floats_(update_floats(shape)),
      updates_(static_cast<size_t>(n_cells), -1),
      rows_(static_cast<size_t>(n_cells), -1),
      node_in_(static_cast<size_t>(n_cells), -1) {
  SLUICE_CHECK(n_copies > 0, "a state on the way is held somewhere");
  for (int32_t copy = n_copies; copy-- > 0;) free_copies_.push_back(copy);
}

Memory FoldedStates::take_state() {
  if (spare_.empty()) return Memory(static_cast<size_t>(n_layers_ * layer_floats_) * sizeof(float));
  Memory state = std::move(spare_.back());
  spare_.pop_back();
  return state;
}

void FoldedStates::give_back(Memory state) {
  constexpr size_t kMostSpare = 2;
  if (state.size() > 0 && spare_.size() < kMostSpare) spare_.push_back(std::move(state));
}

void FoldedStates::apply(const PathUpdate& update) {
  const SequenceId id = sequence_of(update);
  if (const auto* open = std::get_if<Open>(&update)) {
    sequences_[id].checkpoints_to_come = {open->checkpoint};
  } else if (const auto* fork = std::get_if<Fork>(&update)) {
    Sequence& sequence = sequences_[id];
    const Sequence& from = sequences_.at(fork->from);
    sequence.checkpoints_to_come = {fork->checkpoint};
    if (fork->length == 0 || from.folded == 0) return;
    const bool is_earlier = fork->length < from.folded;
    SLUICE_CHECK(!is_earlier || fork->length == from.checkpoint_at, "a sequence is forked to less than what is folded");
    const Memory& there = is_earlier ? from.checkpoint : from.state;
    sequence.folded = is_earlier ? fork->length : from.folded;
    sequence.state = take_state();
    std::copy_n(there.data(), there.size(), sequence.state.data());
  } else if (const auto* truncate = std::get_if<Truncate>(&update)) {
    Sequence& sequence = sequences_.at(id);
    cut(sequence, truncate->length);
    if (truncate->checkpoint > 0) sequence.checkpoints_to_come.push_back(truncate->checkpoint);
  } else if (std::holds_alternative<Close>(update)) {
    const auto at = sequences_.find(id);
    if (at == sequences_.end()) return;
    give_back(std::move(at->second.state));
    give_back(std::move(at->second.checkpoint));
    sequences_.erase(at);
  }
}

void FoldedStates::cut(Sequence& sequence, int32_t length) {
  std::erase_if(sequence.checkpoints_to_come, [&](int32_t at) { return at > length; });
  if (length >= sequence.folded) return;
  if (length == 0) sequence.checkpoint_at = 0;
  SLUICE_CHECK(length == sequence.checkpoint_at, "a sequence is cut to less than what is folded");
  if (length > 0) std::copy_n(sequence.checkpoint.data(), sequence.checkpoint.size(), sequence.state.data());
  sequence.folded = length;
}

void FoldedStates::enter(const Row& row) { drop_update(row.cell); }

int32_t FoldedStates::take_update(Cell cell) {
  int32_t& update = update_in(cell);
  if (update >= 0) return update;
  if (free_.empty()) {
    const auto first = static_cast<int32_t>(chunks_.size()) * kUpdatesOfChunk;
    chunks_.emplace_back(static_cast<size_t>(kUpdatesOfChunk * n_layers_ * update_floats_) * sizeof(float));
    for (int32_t i = kUpdatesOfChunk; i-- > 0;) free_.push_back(first + i);
  }
  update = free_.back();
  free_.pop_back();
  held_.push_back(cell);
  return update;
}

void FoldedStates::drop_update(Cell cell) {
  const int32_t update = std::exchange(update_in(cell), -1);
  if (update < 0) return;
  free_.push_back(update);
  std::erase(held_, cell);
}

void FoldedStates::prepare(std::span<const Row> rows, std::span<const BlockRow> places, const Paths& paths) {
  work_.clear();
  work_of_.clear();
  inputs_.assign(rows.size() * n_before_, {});
  updates_of_rows_.assign(rows.size(), -1);
  for (size_t i = 0; i < rows.size(); ++i) {
    row_in(rows[i].cell) = static_cast<int32_t>(i);
    in_rows_.push_back(rows[i].cell);
    const auto at = std::ranges::find(work_, rows[i].sequence, &Work::sequence);
    work_of_.push_back(static_cast<int32_t>(at - work_.begin()));
    if (at == work_.end()) work_.push_back({.sequence = rows[i].sequence, .steps = {}, .tail = {}});
  }
  for (Work& work : work_) {
    Sequence& sequence = sequences_.at(work.sequence);
    fold(work, sequence, rows, paths);
    nodes_.assign(1, {});
    for (size_t i = 0; i < rows.size(); ++i)
      if (rows[i].sequence == work.sequence && !places[i].path.branch.empty()) branch(work, places[i].path);
    descend(work, 0, work.folded > 0 ? kCommitted : kZeros);
    for (const Node& node : nodes_)
      if (node.cell.valid()) node_in_[static_cast<size_t>(node.cell.value)] = -1;
    for (size_t i = 0; i < rows.size(); ++i)
      if (rows[i].sequence == work.sequence) find_inputs(i, places[i].path, sequence.folded);
  }
}

// What has been committed goes into the state, as far as it is known or among the rows.
void FoldedStates::fold(Work& work, Sequence& sequence, std::span<const Row> rows, const Paths& paths) {
  const auto committed = paths.committed(work.sequence);
  work.folded = sequence.folded;
  for (; work.folded < std::ssize(committed); ++work.folded) {
    const Cell cell = committed[static_cast<size_t>(work.folded)];
    const int32_t row = row_in(cell);
    if (row < 0 && update_in(cell) < 0) break;
    // Another sequence with the same beginning may come to it later.
    const int32_t update = row < 0 ? update_in(cell) : paths.holders(cell) > 1 ? take_update(cell) : -1;
    if (row >= 0) updates_of_rows_[static_cast<size_t>(row)] = update;
    const bool is_own = row < 0 || rows[static_cast<size_t>(row)].sequence == work.sequence;
    work.steps.push_back({row, update, work.folded == 0 ? kZeros : kCommitted, kCommitted, is_own});
    if (std::erase(sequence.checkpoints_to_come, work.folded + 1) == 0) continue;
    work.steps_to_checkpoint = work.steps.size();
    sequence.checkpoint_at = work.folded + 1;
  }
  if (!work.steps.empty()) {
    if (sequence.state.size() == 0) sequence.state = take_state();
    work.tail = tail_of(committed.first(static_cast<size_t>(work.folded)), sequence.folded);
  }
  work.state = sequence.state.as<float>();
  if (work.steps_to_checkpoint == 0) return;
  if (sequence.checkpoint.size() == 0) sequence.checkpoint = take_state();
  work.checkpoint = sequence.checkpoint.as<float>();
  work.checkpoint_tail = tail_of(committed.first(static_cast<size_t>(sequence.checkpoint_at)), sequence.folded);
}

// The inputs of a path's last tokens, of which the first `folded` are in the state.
std::vector<FoldedStates::Input> FoldedStates::tail_of(std::span<const Cell> path, int32_t folded) {
  std::vector<Input> tail;
  const auto end = static_cast<int32_t>(path.size());
  for (int32_t position = end - static_cast<int32_t>(n_before_); position < end; ++position)
    tail.push_back(input_at(position, folded, [&](int32_t p) { return path[static_cast<size_t>(p)]; }));
  return tail;
}

// Adds a path to the nodes that go on from the committed end.
void FoldedStates::branch(const Work& work, const Path& path) {
  SLUICE_CHECK(std::ssize(path.committed) == work.folded, "a row does not go on from what is folded");
  int32_t at = 0;
  for (const Cell cell : path.branch) {
    int32_t& node = node_in_[static_cast<size_t>(cell.value)];
    if (node < 0) {
      const int32_t row = row_in(cell);
      SLUICE_CHECK(row >= 0 || update_in(cell) >= 0, "a row comes before the one that it goes on from");
      if (row >= 0) updates_of_rows_[static_cast<size_t>(row)] = take_update(cell);
      node = static_cast<int32_t>(nodes_.size());
      nodes_[static_cast<size_t>(at)].children.push_back(node);
      nodes_.push_back({.cell = cell});
    }
    at = node;
  }
}

// All nodes behind one whose state is at `place`. Where no copy is free, its own is used up, and made again for the
// next child.
void FoldedStates::descend(Work& work, int32_t node, int32_t place) {
  const std::vector<int32_t> children = nodes_[static_cast<size_t>(node)].children;
  for (size_t i = 0; i < children.size(); ++i) {
    const Cell cell = nodes_[static_cast<size_t>(children[i])].cell;
    const bool uses_up = place >= 0 && (i + 1 == children.size() || free_copies_.empty());
    int32_t to = place;
    if (!uses_up) {
      to = free_copies_.back();
      free_copies_.pop_back();
    }
    work.steps.push_back({row_in(cell), update_in(cell), place, to});
    branch_.push_back(cell);
    descend(work, children[i], to);
    branch_.pop_back();
    if (!uses_up) {
      free_copies_.push_back(to);
    } else if (i + 1 < children.size()) {
      int32_t from = work.folded > 0 ? kCommitted : kZeros;
      for (const Cell before : branch_)
        work.steps.push_back({-1, update_in(before), std::exchange(from, place), place});
    }
  }
}

template <class CellAt>
FoldedStates::Input FoldedStates::input_at(int32_t position, int32_t folded, CellAt&& cell_at) {
  if (position < 0) return {};
  if (position < folded) return {Input::Of::kState, position - (folded - static_cast<int32_t>(n_before_))};
  const Cell cell = cell_at(position);
  if (const int32_t row = row_in(cell); row >= 0) return {Input::Of::kRow, row};
  return {Input::Of::kUpdate, update_in(cell)};
}

void FoldedStates::find_inputs(size_t row, const Path& path, int32_t folded) {
  const auto own = static_cast<int32_t>(path.size()) - 1;
  SLUICE_CHECK(own >= folded, "a row is folded already");
  for (size_t i = 0; i < n_before_; ++i)
    inputs_[row * n_before_ + i] =
        input_at(own - static_cast<int32_t>(n_before_ - i), folded, [&](int32_t position) { return path[position]; });
}

void FoldedStates::finish(const Paths& paths) {
  for (const Work& work : work_) sequences_.at(work.sequence).folded = work.folded;
  for (const Cell cell : std::exchange(in_rows_, {})) row_in(cell) = -1;
  std::vector<Cell> to_be_folded;
  for (const auto& [id, sequence] : sequences_) {
    const auto committed = paths.committed(id).subspan(static_cast<size_t>(sequence.folded));
    to_be_folded.insert(to_be_folded.end(), committed.begin(), committed.end());
  }
  std::ranges::sort(to_be_folded);
  for (const Cell cell : std::vector(held_))
    if (!std::ranges::binary_search(to_be_folded, cell) && !paths.goes_on_from_the_end(cell)) drop_update(cell);
}

}  // namespace sluice

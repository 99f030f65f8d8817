// What is prepared for rows of layers that fold their past, played with states that are lists of tokens.
#include "compute/folded_states.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "compute/decoding.h"

namespace sluice::test {
namespace {

constexpr int32_t kCells = 400, kTaps = 4;

// Does with lists of cells what a layer does with states: one for the committed state, one for each copy, and what
// updates add.
class Played {
 public:
  explicit Played(int32_t n_copies)
      : states_({.n_key_heads = 1, .n_value_heads = 1, .head_dim = 8, .n_taps = kTaps, .layers = {1}}, 1, kCells,
                n_copies) {}

  void apply(const PathUpdate& update) {
    paths_.apply(update);
    states_.apply(update);
    if (const auto* const fork = std::get_if<Fork>(&update)) {
      held_[fork->sequence] = held_[fork->from];
      cut(held_[fork->sequence], fork->length);
    }
    if (const auto* const truncate = std::get_if<Truncate>(&update)) cut(held_[truncate->sequence], truncate->length);
  }

  // Checks that every row comes to the state of its own path, and sees the tokens before it.
  void run(const std::vector<PathUpdate>& updates, const std::vector<Row>& rows, const std::vector<Row>& computed) {
    for (const PathUpdate& update : updates) apply(update);
    for (const Row& row : rows) {
      paths_.enter(row);
      states_.enter(row);
    }
    std::vector<BlockRow> places(computed.size());
    for (size_t i = 0; i < computed.size(); ++i) paths_.find(computed[i], places[i].path);
    states_.prepare(computed, places, paths_);
    for (const FoldedStates::Work& work : states_.work()) play(work, computed, places);
    for (size_t i = 0; i < computed.size(); ++i) check_inputs(computed, i, places[i].path);
    for (const FoldedStates::Work& work : states_.work()) move_tail(work, computed);
    states_.finish(paths_);
  }

  int64_t n_steps = 0, n_updates = 0;

 private:
  using Tokens = std::vector<Cell>;
  // Of a sequence: tokens in its state, with the last ones in its tail, and the same of its checkpoint.
  struct Held {
    Tokens committed, tail, checkpoint, checkpoint_tail;
  };

  static void cut(Held& held, int32_t length) {
    if (length >= std::ssize(held.committed)) return;
    held.committed = length == 0 ? Tokens() : held.checkpoint;
    held.tail = length == 0 ? Tokens() : held.checkpoint_tail;
    EXPECT_EQ(std::ssize(held.committed), length);
  }

  void play(const FoldedStates::Work& work, const std::vector<Row>& rows, const std::vector<BlockRow>& places) {
    Held& held = held_[work.sequence];
    std::map<int32_t, Tokens> at = {{FoldedStates::kZeros, {}}, {FoldedStates::kCommitted, held.committed}};
    size_t n_played = 0;
    for (const FoldedStates::Step& step : work.steps) {
      ASSERT_TRUE(at.contains(step.from));
      ASSERT_LT(step.to, states_.n_copies());
      Tokens state = at[step.from];
      const bool is_row = step.row >= 0;
      const Cell cell = is_row ? rows[static_cast<size_t>(step.row)].cell : adds_[step.update];
      state.push_back(cell);
      ++n_steps;
      n_updates += !is_row;
      if (is_row) {
        const Path& path = places[static_cast<size_t>(step.row)].path;
        Tokens whole(path.committed.begin(), path.committed.end());
        whole.insert(whole.end(), path.branch.begin(), path.branch.end());
        EXPECT_EQ(state, whole);
        EXPECT_EQ(step.is_own, rows[static_cast<size_t>(step.row)].sequence == work.sequence);
        EXPECT_EQ(step.update, states_.update_of(step.row));
        if (step.update >= 0) adds_[step.update] = cell;
      }
      at[step.to] = state;
      if (n_played++ == work.steps_to_checkpoint - 1) held.checkpoint = at[FoldedStates::kCommitted];
    }
    held.committed = at[FoldedStates::kCommitted];
    EXPECT_EQ(work.folded, std::ssize(held.committed));
  }

  // The cell of a token that a convolution sees.
  Cell seen(const FoldedStates::Input& input, const std::vector<Row>& rows, SequenceId sequence) {
    using Of = FoldedStates::Input::Of;
    if (input.of == Of::kRow) return rows[static_cast<size_t>(input.at)].cell;
    if (input.of == Of::kUpdate) return adds_.at(input.at);
    if (input.of == Of::kState) return held_[sequence].tail.at(static_cast<size_t>(input.at));
    return {};
  }

  void check_inputs(const std::vector<Row>& rows, size_t row, const Path& path) {
    const auto inputs = states_.inputs(static_cast<int64_t>(row));
    for (int64_t i = 0; i < kTaps - 1; ++i) {
      const int64_t position = path.size() - kTaps + i;
      EXPECT_EQ(seen(inputs[static_cast<size_t>(i)], rows, rows[row].sequence), position < 0 ? Cell() : path[position]);
    }
  }

  void move_tail(const FoldedStates::Work& work, const std::vector<Row>& rows) {
    const auto all = [&](const std::vector<FoldedStates::Input>& inputs) {
      Tokens tokens;
      for (const FoldedStates::Input& input : inputs) tokens.push_back(seen(input, rows, work.sequence));
      return tokens;
    };
    if (work.steps_to_checkpoint > 0) held_[work.sequence].checkpoint_tail = all(work.checkpoint_tail);
    if (!work.tail.empty()) held_[work.sequence].tail = all(work.tail);
  }

  Paths paths_{kCells};
  FoldedStates states_;
  std::map<SequenceId, Held> held_;
  std::map<int32_t, Cell> adds_;  // by update
};

// A tree that grows level by level, as the engine's do, of which one child of the root is committed now and then.
class Growing {
 public:
  Growing(uint64_t seed, Played& played) : dice_(seed), played_(played) {
    for (int32_t cell = kCells; cell-- > 0;) free_.push_back(cell);
    updates_.emplace_back(Open{SequenceId(0), {}});
    std::vector<Row> prompt;
    for (int32_t i = 0; i < 7; ++i) prompt.push_back(row_of(i, i == 0 ? -1 : root_, Row::Kind::kPrompt));
    send(prompt, prompt);
  }

  void grow() {
    std::vector<Row> rows, computed;
    const size_t n_before = tree_.size();
    for (int32_t i = 0, n = 1 + dice_.below(8); i < n && free_.size() > 50; ++i) {
      const bool from_root = tree_.empty() || dice_.uniform() < 0.3;
      const Row parent =
          from_root ? Row{} : tree_[static_cast<size_t>(dice_.below(static_cast<int32_t>(tree_.size())))];
      const Row row =
          row_of(from_root ? depth_ : parent.position + 1, from_root ? root_ : parent.cell.value, Row::Kind::kNode);
      rows.push_back(row);
      if (dice_.uniform() < 0.15) {  // dead on the way
        dead_.push_back(row.cell.value);
        continue;
      }
      computed.push_back(row);
      tree_.push_back(row);
    }
    if (!rows.empty()) send(rows, computed);
    free_.insert(free_.end(), dead_.begin(), dead_.end());
    dead_.clear();
    if (n_before > 0 && dice_.uniform() < 0.5) commit();
  }

 private:
  Row row_of(int32_t position, int32_t parent, Row::Kind kind) {
    const int32_t cell = free_.back();
    free_.pop_back();
    if (kind == Row::Kind::kPrompt) root_ = cell, depth_ = position + 1;
    return make_row(0, cell, position, cell, parent, kind);
  }
  void commit() {
    const auto child = std::ranges::find(tree_, Cell(root_), &Row::parent);
    if (child == tree_.end()) return;
    const Row chosen = *child;
    updates_.emplace_back(Commit{SequenceId(0), chosen.cell});
    std::vector<Cell> alive = {chosen.cell};
    std::vector<Row> kept;
    for (const Row& row : tree_) {
      if (row.cell == chosen.cell) continue;
      if (std::ranges::count(alive, row.parent) == 0) {
        free_.push_back(row.cell.value);
        continue;
      }
      alive.push_back(row.cell);
      kept.push_back(row);
    }
    tree_ = kept;
    root_ = chosen.cell.value;
    ++depth_;
  }
  void send(const std::vector<Row>& rows, const std::vector<Row>& computed) {
    played_.run(std::exchange(updates_, {}), rows, computed);
  }

  Dice dice_;
  Played& played_;
  std::vector<int32_t> free_, dead_;
  std::vector<PathUpdate> updates_;
  std::vector<Row> tree_;  // parents first
  int32_t root_ = -1, depth_ = 0;
};

TEST(FoldedStates, EveryRowComesToTheStateOfItsOwnPathHoweverFewCopiesThereAre) {
  int64_t steps_before = std::numeric_limits<int64_t>::max();
  for (const int32_t n_copies : {1, 2, 3, 8, 64}) {
    int64_t steps = 0;
    for (uint64_t seed = 0; seed < 200; ++seed) {
      SCOPED_TRACE(::testing::Message() << n_copies << " copies, seed " << seed);
      Played played(n_copies);
      Growing tree(seed, played);
      for (int i = 0; i < 20; ++i) ASSERT_NO_FATAL_FAILURE(tree.grow());
      steps += played.n_steps;
      EXPECT_GT(played.n_updates, 0);
    }
    EXPECT_LE(steps, steps_before) << "more copies save steps";
    steps_before = steps;
  }
}

TEST(FoldedStates, APathGoesOnFromItsCheckpoint) {
  for (const int32_t at : {1, 2, 3, 7, 10, 12, 13}) {
    SCOPED_TRACE(at);
    Played played(4);
    const auto chain = [](int32_t sequence, int32_t first, int32_t end, int32_t cell, int32_t parent) {
      std::vector<Row> rows;
      for (int32_t i = first; i < end; ++i, parent = cell++)
        rows.push_back(make_row(sequence, cell, i, cell, parent, Row::Kind::kPrompt));
      return rows;
    };
    std::vector<PathUpdate> updates = {Open{SequenceId(0), {}, at}};
    for (const auto& [first, end] : {std::pair{0, 10}, {10, 13}, {13, 16}}) {
      const auto rows = chain(0, first, end, first, first - 1);
      played.run(std::exchange(updates, {}), rows, rows);
    }
    for (int32_t turn = 1; turn < 3; ++turn) {  // the second time from the same one
      const auto again = chain(0, at, at + 5, 40 * turn, at - 1);
      played.run({Truncate{SequenceId(0), at, {}}}, again, again);
    }
    const auto fork = chain(1, at, at + 4, 200, at - 1);
    played.run({Fork{SequenceId(1), SequenceId(0), at, {}, at + 2}}, fork, fork);
    const auto later = chain(1, at + 2, at + 4, 300, 201);
    played.run({Truncate{SequenceId(1), at + 2, {}}}, later, later);
    const auto anew = chain(0, 0, 4, 320, -1);
    played.run({Truncate{SequenceId(0), 0, {}, 3}}, anew, anew);
    EXPECT_THROW(played.apply(Truncate{SequenceId(0), 2, {}}), BrokenInvariant);
  }
}

TEST(FoldedStates, AForkGoesItsOwnWayFromWhatHasBeenFolded) {
  Played played(4);
  const auto chain = [](int32_t sequence, int32_t first, int32_t cell, int32_t parent, int32_t n, Row::Kind kind) {
    std::vector<Row> rows;
    for (int32_t i = 0; i < n; ++i) {
      rows.push_back(make_row(sequence, cell, first + i, cell, parent, kind));
      parent = cell++;
    }
    return rows;
  };
  const auto prompt = chain(0, 0, 0, -1, 10, Row::Kind::kPrompt);
  played.run({Open{SequenceId(0), {}}}, prompt, prompt);
  const auto nodes = chain(0, 10, 20, 9, 2, Row::Kind::kNode);
  played.run({}, nodes, nodes);
  // One of what is folded, one of what has been committed since: it folds that itself.
  std::vector<Row> rows = chain(1, 10, 40, 9, 3, Row::Kind::kNode);
  for (const Row& row : chain(2, 11, 50, 20, 3, Row::Kind::kNode)) rows.push_back(row);
  played.run({Fork{SequenceId(1), SequenceId(0), 10, {}}, Commit{SequenceId(0), Cell(20)},
              Fork{SequenceId(2), SequenceId(0), 11, {}}},
             rows, rows);
  const auto later = chain(0, 12, 60, 21, 2, Row::Kind::kNode);
  played.run({Commit{SequenceId(0), Cell(21)}, Close{SequenceId(1)}}, later, later);
}

}  // namespace
}  // namespace sluice::test

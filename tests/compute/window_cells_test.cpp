#include "compute/window_cells.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <vector>

#include "base/result.h"

namespace sluice::test {
namespace {

constexpr int32_t kAllCells = 4 * WindowCells::kBlock + 7, kSeen = 5, kStays = 3;

// Sequences of prompt rows, and what is forgotten meanwhile.
class Texts {
 public:
  Texts() : window_cells_(kAllCells, kSeen, kStays, [this](Cell first, int32_t n) { forget(first.value, n); }) {}

  void apply(const PathUpdate& update) {
    window_cells_.before(update, paths);
    paths.apply(update);
    window_cells_.after(update, paths);
  }
  void open(int32_t sequence) { apply(Open{SequenceId(sequence), {}}); }
  void fork(int32_t sequence, int32_t from, int32_t length) {
    apply(Fork{SequenceId(sequence), SequenceId(from), length, {}});
  }
  void truncate(int32_t sequence, int32_t length) { apply(Truncate{SequenceId(sequence), length, {}}); }
  void close(int32_t sequence) { apply(Close{SequenceId(sequence)}); }
  void add(int32_t sequence, int32_t cell, Row::Kind kind = Row::Kind::kPrompt) {
    const auto path = paths.committed(SequenceId(sequence));
    const Row row{.sequence = SequenceId(sequence),
                  .position = static_cast<int32_t>(path.size()),
                  .cell = Cell(cell),
                  .parent = path.empty() ? Cell() : path.back(),
                  .kind = kind};
    paths.enter(row);
    window_cells_.entered(row, paths);
    window_cells_.written(row.cell);
    holds.insert(cell);
  }
  void add(int32_t sequence, int32_t first, int32_t n) {
    for (int32_t i = 0; i < n; ++i) add(sequence, first + i);
  }
  bool is_lost(int32_t cell) const { return window_cells_.is_lost(Cell(cell)); }

  Paths paths{kAllCells};
  std::set<int32_t> holds;  // cells written and not forgotten since

 private:
  void forget(int32_t first, int32_t n) {
    for (int32_t i = 0; i < n; ++i) holds.erase(first + i);
  }
  WindowCells window_cells_;
};

TEST(WindowCells, ABlockIsForgottenWhenItsLastCellIsPast) {
  Texts texts;
  texts.open(0);
  const int32_t all = WindowCells::kBlock + kSeen + kStays;
  texts.add(0, 0, all - 1);
  EXPECT_TRUE(texts.holds.contains(0));
  texts.add(0, all - 1);
  for (int32_t cell = 0; cell < all; ++cell) {
    EXPECT_EQ(texts.holds.contains(cell), cell >= WindowCells::kBlock) << cell;
    EXPECT_EQ(texts.is_lost(cell), cell < WindowCells::kBlock) << cell;
  }
  texts.close(0);
  texts.open(1);
  texts.add(1, 3);
  EXPECT_FALSE(texts.is_lost(3)) << "it has been written anew";
  EXPECT_TRUE(texts.is_lost(4));
}

TEST(WindowCells, NodesAreNeverPast) {
  Texts texts;
  texts.open(0);
  texts.add(0, 0, 7);
  texts.add(0, 7, Row::Kind::kNode);  // a guess that leads nowhere, amid the block
  texts.add(0, 8, 2 * WindowCells::kBlock);
  EXPECT_TRUE(texts.holds.contains(0));
  EXPECT_TRUE(texts.holds.contains(7));
}

TEST(WindowCells, WhatAnotherSequenceHasBeforeItStays) {
  Texts texts;
  texts.open(0);
  texts.add(0, 0, 2 * WindowCells::kBlock);
  texts.open(1);
  texts.add(1, 2 * WindowCells::kBlock, WindowCells::kBlock);
  texts.fork(2, 1, WindowCells::kBlock);
  texts.add(1, 3 * WindowCells::kBlock, WindowCells::kBlock);
  EXPECT_TRUE(texts.holds.contains(2 * WindowCells::kBlock)) << "the other one goes on from there";
  texts.close(2);
  EXPECT_FALSE(texts.holds.contains(2 * WindowCells::kBlock));
}

TEST(WindowCells, ASequenceIsCutNoFurtherThanItsWindowIsThere) {
  Texts texts;
  texts.open(0);
  texts.add(0, 0, 40);
  EXPECT_THROW(texts.truncate(0, 40 - kStays - 1), BrokenInvariant);
  EXPECT_THROW(texts.fork(1, 0, 40 - kStays - 1), BrokenInvariant);
  texts.truncate(0, 40 - kStays);
  texts.truncate(0, 0);
  texts.add(0, 50, 3);
  texts.truncate(0, 1);  // nothing is past yet
}

// Whatever happens to sequences: all that the next row of one can see is there, wherever it is cut back to.
TEST(WindowCells, StoriesLoseNothingThatIsSeen) {
  size_t n_forgotten = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::mt19937 dice(seed);
    const auto below = [&](int32_t n) { return static_cast<int32_t>(dice() % static_cast<uint32_t>(n)); };
    Texts texts;
    std::map<int32_t, int32_t> reached;  // by open sequence: the most tokens that it or its origin had
    int32_t next = 0;
    const auto length = [&](int32_t id) { return std::ssize(texts.paths.committed(SequenceId(id))); };
    const auto free_cell = [&]() -> int32_t {
      const int32_t from = below(kAllCells);
      for (int32_t i = 0; i < kAllCells; ++i)
        if (const int32_t cell = (from / WindowCells::kBlock * WindowCells::kBlock + i) % kAllCells;
            texts.paths.holders(Cell(cell)) == 0)
          return cell;
      return -1;
    };
    const auto one = [&] { return std::next(reached.begin(), below(static_cast<int32_t>(reached.size())))->first; };
    for (int32_t step = 0; step < 400; ++step) {
      const int32_t what = below(100);
      if (reached.empty() || what < 3) {
        texts.open(next);
        reached[next++] = 0;
      } else if (what < 6) {
        const int32_t from = one(), to = below(static_cast<int32_t>(length(from)) + 1);
        if (to > 0 && to + kStays < reached[from]) continue;
        texts.fork(next, from, to);
        reached[next++] = to == 0 ? 0 : reached[from];
      } else if (what < 10) {
        const int32_t id = one(), to = below(static_cast<int32_t>(length(id)) + 1);
        if (to > 0 && to + kStays < reached[id]) continue;
        texts.truncate(id, to);
        if (to == 0) reached[id] = 0;
      } else if (what < 12) {
        const int32_t id = one();
        texts.close(id);
        reached.erase(id);
      } else if (const int32_t cell = free_cell(); cell >= 0) {
        const int32_t id = one();
        texts.add(id, cell, below(6) == 0 ? Row::Kind::kNode : Row::Kind::kPrompt);
        reached[id] = std::max(reached[id], static_cast<int32_t>(length(id)));
      }
      for (const auto& [id, most] : reached) {
        const auto path = texts.paths.committed(SequenceId(id));
        for (auto i = std::max<int64_t>(0, most - kStays - kSeen); i < std::ssize(path); ++i)
          ASSERT_TRUE(texts.holds.contains(path[static_cast<size_t>(i)].value)) << seed << ", step " << step;
        for (const Cell cell : path) n_forgotten += texts.holds.contains(cell.value) ? 0 : 1;
      }
    }
  }
  EXPECT_GT(n_forgotten, 1000u);
}

}  // namespace
}  // namespace sluice::test

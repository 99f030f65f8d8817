#include "tree/residency.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "support/broken.h"

namespace sluice {
namespace {

constexpr SequenceId kOne(1), kTwo(2);

TEST(CellPool, GivesEachCellToOneHolder) {
  CellPool pool(5);
  std::set<Cell> taken;
  for (int i = 0; i < 5; ++i) taken.insert(pool.take(i % 2 == 0 ? kOne : kTwo));
  EXPECT_EQ(taken, (std::set<Cell>{Cell(0), Cell(1), Cell(2), Cell(3), Cell(4)}));
  EXPECT_EQ(pool.available(), 0u);
}

TEST(CellPool, GivesOutAgainFirstWhatCameBackLast) {
  CellPool pool(3);
  const Cell a = pool.take(kOne), b = pool.take(kOne);
  pool.give_back(kOne, a);
  pool.give_back(kOne, b);
  EXPECT_EQ(pool.available(), 3u);
  EXPECT_EQ(pool.take(kOne), b);
  EXPECT_EQ(pool.take(kOne), a);
}

TEST(CellPool, ACellIsFreeWhenItsLastHolderLetsGo) {
  CellPool pool(2);
  const Cell cell = pool.take(kOne);
  pool.share(cell);
  pool.share(cell);
  EXPECT_EQ(pool.shared(), 2u);
  pool.give_back(kOne, cell);
  pool.close(kOne);
  pool.give_back(kTwo, cell);
  EXPECT_EQ(pool.available(), 1u);
  EXPECT_EQ(pool.holders(cell), 1);
  pool.give_back(kTwo, cell);
  EXPECT_EQ(pool.available(), 2u);
  EXPECT_EQ(pool.take(kTwo), cell) << "the last one's own";
  pool.give_back(kTwo, cell);
  EXPECT_BROKEN(pool.give_back(kTwo, cell), "by who holds it");
  EXPECT_BROKEN(pool.share(cell), "that somebody holds");
}

TEST(CellPool, KeepsTheCellsOfASequenceTogether) {
  constexpr int32_t kBlock = CellPool::kBlock;
  CellPool pool(2 * kBlock);
  for (int32_t i = 0; i < kBlock; ++i) {
    EXPECT_EQ(pool.take(kOne), Cell(i));
    EXPECT_EQ(pool.take(kTwo), Cell(kBlock + i));
  }
  for (int32_t i = 0; i < kBlock; ++i) pool.give_back(kTwo, Cell(kBlock + i));
  pool.close(kTwo);
  for (int32_t i = 0; i < kBlock; ++i) EXPECT_EQ(pool.take(kOne), Cell(kBlock + i));
}

TEST(CellPool, AnyStoryEndsWithEveryCellFreeInWholeBlocks) {
  constexpr int32_t kSize = 5 * CellPool::kBlock + 7;
  std::mt19937 random(5);
  CellPool pool(kSize);
  std::map<SequenceId, std::vector<Cell>> held;
  std::set<Cell> taken;
  for (int step = 0; step < 20000; ++step) {
    const SequenceId sequence(static_cast<int32_t>(random() % 4));
    std::vector<Cell>& cells = held[sequence];
    if (random() % 400 == 0) {
      for (const Cell cell : cells) {
        pool.give_back(sequence, cell);
        taken.erase(cell);
      }
      cells.clear();
      pool.close(sequence);
    } else if (random() % 9 < 5 && pool.available() > 0) {
      cells.push_back(pool.take(sequence));
      ASSERT_TRUE(taken.insert(cells.back()).second) << "a cell with two holders";
    } else if (!cells.empty()) {
      std::swap(cells[random() % cells.size()], cells.back());
      pool.give_back(sequence, cells.back());
      taken.erase(cells.back());
      cells.pop_back();
    }
    ASSERT_EQ(pool.available() + taken.size(), static_cast<size_t>(kSize));
  }
  for (auto& [sequence, cells] : held) {
    for (const Cell cell : cells) pool.give_back(sequence, cell);
    pool.close(sequence);
  }
  std::vector<Cell> all;
  while (pool.available() > 0) all.push_back(pool.take(kOne));
  ASSERT_EQ(all.size(), static_cast<size_t>(kSize));
  for (size_t i = 1; i < all.size(); ++i)
    EXPECT_TRUE(all[i].value == all[i - 1].value + 1 || all[i].value % CellPool::kBlock == 0) << i;
}

TEST(CellPool, TakesFromOthersWhoHaveAny) {
  CellPool pool(4);  // one block, which is all kOne's
  std::vector<Cell> cells;
  for (int i = 0; i < 4; ++i) cells.push_back(pool.take(kOne));
  pool.give_back(kTwo, cells[2]);
  EXPECT_EQ(pool.take(kOne), cells[2]);
  pool.give_back(kOne, cells[0]);
  EXPECT_EQ(pool.take(kOne), cells[0]) << "nothing is left to it";
  pool.give_back(kTwo, cells[3]);
  EXPECT_EQ(pool.take(SequenceId(0)), cells[3]);
  EXPECT_EQ(pool.available(), 0u);
}

TEST(CellPool, WithoutAWholeBlockTakesLooseCellsThenThoseOfOthers) {
  constexpr int32_t kBlock = CellPool::kBlock;
  constexpr SequenceId kThree(3);
  CellPool pool(3 * kBlock);
  for (int32_t i = 0; i < 2 * kBlock; ++i) pool.take(kOne);
  for (int32_t i = 0; i < kBlock; ++i) pool.take(kTwo);
  for (const int32_t cell : {40, 3, 41}) pool.give_back(kOne, Cell(cell));
  pool.close(kOne);
  for (const int32_t cell : {70, 71}) pool.give_back(kTwo, Cell(cell));
  pool.give_back(kOne, Cell(5));
  EXPECT_EQ(pool.take(kOne), Cell(5)) << "its own";
  EXPECT_EQ(pool.take(kThree), Cell(3)) << "the first block with loose ones";
  EXPECT_EQ(pool.take(kThree), Cell(41)) << "the next";
  EXPECT_EQ(pool.take(kThree), Cell(40)) << "a block's loose ones are taken together";
  EXPECT_EQ(pool.take(kThree), Cell(71)) << "what another has given back last";
  EXPECT_EQ(pool.take(kTwo), Cell(70));
  EXPECT_EQ(pool.available(), 0u);
}

TEST(CellPool, ScatteredCellsAreFoundAboutAsFastAsWholeBlocks) {
  constexpr int32_t kBlocks = 16'000;
  CellPool pool(kBlocks * CellPool::kBlock);
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto begin = now();
  for (int32_t i = 0; i < kBlocks * CellPool::kBlock; ++i) pool.take(SequenceId(i / CellPool::kBlock));
  const auto whole = now() - begin;
  // One loose cell a block, and one that is free to each sequence.
  for (int32_t i = 0; i < kBlocks; ++i) pool.give_back(SequenceId(0), Cell(i * CellPool::kBlock));
  pool.close(SequenceId(0));
  for (int32_t i = 1; i < kBlocks; ++i) pool.give_back(SequenceId(i), Cell(i * CellPool::kBlock + 1));
  const auto scattered_begin = now();
  while (pool.available() > 0) pool.take(SequenceId(kBlocks));
  // They are a sixteenth as many; looking through all blocks and sequences for each would take hundreds of times as
  // long.
  EXPECT_LT(now() - scattered_begin, 10 * whole);
}

TEST(CellPool, AnEmptyOneHasNothingToGive) {
  CellPool pool(1);
  pool.take(kOne);
  EXPECT_BROKEN(pool.take(kOne), "a cell is left");
}

TEST(Residency, ANodeThatIsNotThereWaits) {
  Residency residency;
  EXPECT_FALSE(residency.entered(NodeId(3)));
  EXPECT_EQ(residency.find(NodeId(3)), nullptr);
  residency.enter(NodeId(3), {Cell(9), BatchId(2), 5});
  ASSERT_NE(residency.find(NodeId(3)), nullptr);
  EXPECT_EQ(residency.find(NodeId(3))->cell, Cell(9));
  EXPECT_EQ(residency.find(NodeId(3))->batch, BatchId(2));
  EXPECT_EQ(residency.find(NodeId(3))->row, 5);
  residency.leave(NodeId(3));
  residency.leave(NodeId(3));  // no harm
  EXPECT_FALSE(residency.entered(NodeId(3)));
  EXPECT_TRUE(residency.cells().empty());
}

}  // namespace
}  // namespace sluice

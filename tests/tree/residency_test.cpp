#include "tree/residency.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

TEST(CellPool, GivesEachCellToOneHolder) {
  CellPool pool(5);
  std::set<Cell> taken;
  for (int i = 0; i < 5; ++i) taken.insert(pool.take());
  EXPECT_EQ(taken, (std::set<Cell>{Cell(0), Cell(1), Cell(2), Cell(3), Cell(4)}));
  EXPECT_EQ(pool.available(), 0u);
}

TEST(CellPool, GivesOutAgainFirstWhatCameBackLast) {
  CellPool pool(3);
  const Cell a = pool.take(), b = pool.take();
  pool.give_back(a);
  pool.give_back(b);
  EXPECT_EQ(pool.available(), 3u);
  EXPECT_EQ(pool.take(), b);
  EXPECT_EQ(pool.take(), a);
}

TEST(CellPoolDeath, AnEmptyOneHasNothingToGive) {
  CellPool pool(1);
  pool.take();
  EXPECT_DEATH(pool.take(), "a cell is left");
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
  EXPECT_EQ(residency.size(), 0u);
}

}  // namespace
}  // namespace sluice

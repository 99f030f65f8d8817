#include "pipeline/journal.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr int32_t kCells = 4, kState = 2;

Row row(Token token, int32_t cell, int32_t parent, Row::Kind kind = Row::Kind::kPrompt) {
  return {.sequence = SequenceId(0),
          .token = token,
          .position = parent < 0 ? 0 : 1,
          .cell = Cell(cell),
          .parent = parent < 0 ? Cell() : Cell(parent),
          .kind = kind};
}

// What a stage does with a row; whether it had to compute it.
bool computes(Journal& journal, const Row& row) {
  if (journal.finds(row)) return false;
  const float state[kState] = {static_cast<float>(row.token), static_cast<float>(row.cell.value)};
  journal.keep(row, state);
  return true;
}

TEST(Journal, FindsAPathInItsCellsOnceStagesWereLost) {
  Journal journal(kCells, kState, 1 << 20);
  EXPECT_TRUE(computes(journal, row(5, 0, -1)));
  EXPECT_TRUE(computes(journal, row(6, 1, 0, Row::Kind::kNode)));
  EXPECT_TRUE(computes(journal, row(5, 0, -1))) << "nothing was lost";
  journal.begin_anew();
  EXPECT_FALSE(computes(journal, row(5, 0, -1)));
  EXPECT_FALSE(computes(journal, row(6, 1, 0))) << "a node that was committed comes as a prompt";
  EXPECT_EQ(journal.state(row(6, 1, 0))[0], 6.0f);
  EXPECT_EQ(journal.state(row(6, 1, 0))[1], 1.0f);
  EXPECT_TRUE(computes(journal, row(6, 2, 0))) << "another cell";
  EXPECT_TRUE(computes(journal, row(7, 3, 1, Row::Kind::kNode))) << "nodes are verified by what comes of them";
}

TEST(Journal, WhatHangsFromAnotherTokenIsAnotherPath) {
  Journal journal(kCells, kState, 1 << 20);
  for (const Row& one : {row(5, 0, -1), row(6, 1, 0)}) computes(journal, one);
  journal.begin_anew();
  EXPECT_TRUE(computes(journal, row(8, 0, -1)));
  EXPECT_TRUE(computes(journal, row(6, 1, 0)));
  journal.begin_anew();
  EXPECT_FALSE(computes(journal, row(8, 0, -1)));
  EXPECT_FALSE(computes(journal, row(6, 1, 0)));
  journal.begin_anew();
  EXPECT_TRUE(computes(journal, row(5, 0, -1)));
  EXPECT_TRUE(computes(journal, row(6, 1, 0))) << "below what was there first, and then was not";
}

// Of which the state had no place, for instance.
TEST(Journal, WhatIsComputedAgainIsTheSameForWhatHangsFromIt) {
  Journal journal(kCells, kState, kState * sizeof(float));
  for (const Row& one : {row(5, 1, -1), row(6, 0, 1)}) computes(journal, one);
  journal.begin_anew();
  EXPECT_TRUE(computes(journal, row(5, 1, -1))) << "there is room for the state of one cell, the first";
  EXPECT_FALSE(computes(journal, row(6, 0, 1)));
}

TEST(Journal, TheLastStageNeedsNoStates) {
  Journal journal(kCells, 0, 0);
  EXPECT_FALSE(journal.finds(row(5, 3, -1)));
  journal.begin_anew();
  EXPECT_TRUE(journal.finds(row(5, 3, -1)));
  journal.clear();
  EXPECT_FALSE(journal.finds(row(5, 3, -1)));
}

}  // namespace
}  // namespace sluice

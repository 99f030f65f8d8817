#include "compute/paths.h"

#include <gtest/gtest.h>

#include "compute/decoding.h"
#include "support/broken.h"

namespace sluice::test {
namespace {

std::vector<int32_t> cells(const Paths& paths, const Row& row) {
  Path path;
  paths.find(row, path);
  std::vector<int32_t> out;
  for (int64_t i = 0; i < path.size(); ++i) out.push_back(path[i].value);
  return out;
}

class PathsOfOneSequence : public ::testing::Test {
 protected:
  PathsOfOneSequence() {
    paths.apply(Open{SequenceId(0), {}});
    for (int32_t i = 0; i < 3; ++i) paths.enter(make_row(0, 1, i, 10 + i, i ? 9 + i : -1, Row::Kind::kPrompt));
  }
  Paths paths{64};
};

TEST_F(PathsOfOneSequence, ARowSeesTheCommittedTokensItsAncestorsAndItself) {
  const Row a = make_row(0, 1, 3, 40, 12), b = make_row(0, 2, 3, 20, 12), child = make_row(0, 3, 4, 5, 20);
  for (const Row& row : {a, b, child}) paths.enter(row);
  EXPECT_EQ(cells(paths, a), (std::vector<int32_t>{10, 11, 12, 40}));
  EXPECT_EQ(cells(paths, child), (std::vector<int32_t>{10, 11, 12, 20, 5}));
}

TEST_F(PathsOfOneSequence, ACommitChangesNoPath) {
  const Row a = make_row(0, 1, 3, 40, 12), b = make_row(0, 2, 3, 20, 12), child = make_row(0, 3, 4, 5, 20);
  for (const Row& row : {a, b, child}) paths.enter(row);
  paths.apply(Commit{SequenceId(0), Cell(20)});
  EXPECT_EQ(cells(paths, child), (std::vector<int32_t>{10, 11, 12, 20, 5}));
  EXPECT_EQ(cells(paths, a), (std::vector<int32_t>{10, 11, 12, 40})) << "a dead branch keeps its own path";
}

TEST_F(PathsOfOneSequence, GoesOnFromWhereItWasCut) {
  paths.apply(Truncate{SequenceId(0), 1, {}});
  const Row row = make_row(0, 1, 1, 11, 10);
  paths.enter(row);
  EXPECT_EQ(cells(paths, row), (std::vector<int32_t>{10, 11}));
}

TEST_F(PathsOfOneSequence, AnotherSequenceMayShareACommittedPrefix) {
  paths.apply(Open{SequenceId(1), {}});
  paths.apply(Commit{SequenceId(1), Cell(10)});
  const Row row = make_row(1, 7, 1, 50, 10);
  paths.enter(row);
  EXPECT_EQ(cells(paths, row), (std::vector<int32_t>{10, 50}));
}

TEST_F(PathsOfOneSequence, AForkBeginsWithAPrefixAndGoesItsOwnWay) {
  paths.apply(Fork{SequenceId(1), SequenceId(0), 2, {}});
  const Row row = make_row(1, 7, 2, 50, 11), other = make_row(0, 8, 3, 51, 12);
  for (const Row& one : {row, other}) paths.enter(one);
  EXPECT_EQ(cells(paths, row), (std::vector<int32_t>{10, 11, 50}));
  EXPECT_EQ(cells(paths, other), (std::vector<int32_t>{10, 11, 12, 51}));
  EXPECT_BROKEN(paths.apply(Fork{SequenceId(2), SequenceId(0), 4, {}}), "beyond its end");
  EXPECT_BROKEN(paths.apply(Fork{SequenceId(2), SequenceId(3), 1, {}}), "isn't open");
  EXPECT_BROKEN(paths.apply(Fork{SequenceId(1), SequenceId(0), 1, {}}), "opened twice");
}

TEST_F(PathsOfOneSequence, ACellIsWrittenAnewWhenNobodyHoldsItAnyMore) {
  paths.apply(Fork{SequenceId(1), SequenceId(0), 3, {}});
  paths.apply(Truncate{SequenceId(0), 1, {}});
  const Row at_11 = make_row(0, 2, 1, 11, 10), at_12 = make_row(0, 2, 1, 12, 10);
  EXPECT_BROKEN(paths.enter(at_11), "given out again");
  paths.apply(Truncate{SequenceId(1), 2, {}});
  paths.enter(at_12);
  EXPECT_BROKEN(paths.enter(at_11), "given out again");
  paths.apply(Close{SequenceId(1)});
  paths.enter(at_11);
  EXPECT_EQ(cells(paths, at_11), (std::vector<int32_t>{10, 11}));
}

TEST_F(PathsOfOneSequence, ACellHasSoManyHoldersAtMost) {
  for (int32_t i = 1; i < kMostHolders; ++i) paths.apply(Fork{SequenceId(i), SequenceId(i - 1), 2, {}});
  EXPECT_BROKEN(paths.apply(Fork{SequenceId(kMostHolders), SequenceId(1), 1, {}}), "more sequences than it may");
  paths.apply(Close{SequenceId(1)});
  paths.apply(Fork{SequenceId(kMostHolders), SequenceId(0), 2, {}});
}

TEST_F(PathsOfOneSequence, AParentMustBeTheTokenBefore) {
  EXPECT_BROKEN(paths.enter(make_row(0, 1, 3, 40, 11)), "parent");
  EXPECT_BROKEN(paths.enter(make_row(0, 1, 3, 40, -1)), "parent");
  EXPECT_BROKEN(paths.enter(make_row(0, 1, 3, 64, 12)), "out of range");
  EXPECT_BROKEN(paths.enter(make_row(0, 1, 3, 11, 12)), "given out again");
  EXPECT_BROKEN(paths.enter(make_row(2, 1, 0, 40, -1)), "isn't open");
}

}  // namespace
}  // namespace sluice::test

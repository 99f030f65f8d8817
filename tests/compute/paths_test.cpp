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

TEST_F(PathsOfOneSequence, AParentMustBeTheTokenBefore) {
  EXPECT_BROKEN(paths.enter(make_row(0, 1, 3, 40, 11)), "parent");
  EXPECT_BROKEN(paths.enter(make_row(0, 1, 3, 40, -1)), "parent");
  EXPECT_BROKEN(paths.enter(make_row(0, 1, 3, 64, 12)), "out of range");
  EXPECT_BROKEN(paths.enter(make_row(0, 1, 3, 11, 12)), "given out again");
  EXPECT_BROKEN(paths.enter(make_row(2, 1, 0, 40, -1)), "isn't open");
}

}  // namespace
}  // namespace sluice::test

// Random stories in which messages are late, come twice or in another order, workers pause or crash, and stages are
// lost and replaced: the tokens are those of plain decoding, and no cell is lost or read after it has become another's.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "exactness/story.h"

namespace sluice {
namespace {

using namespace test;

struct Told {
  int64_t stories = 0, crashed = 0, losses = 0, replays = 0, hits = 0, flushes = 0, reads = 0;
};

void tell_stories(uint64_t first, uint64_t end, Told& told) {
  for (uint64_t seed = first; seed < end; ++seed) {
    Story story(seed, /*faults=*/true);
    ASSERT_NO_FATAL_FAILURE(story.run());
    ASSERT_FALSE(::testing::Test::HasFailure());
    ++told.stories;
    told.crashed += story.crashed;
    told.losses += story.losses;
    told.replays += story.replays;
    told.hits += story.hits;
    told.flushes += story.flushes;
    told.reads += story.reads();
  }
}

constexpr uint64_t kFirst = 1 << 20;  // none that the stories without faults have had

class FaultStories : public ::testing::TestWithParam<uint64_t> {};

TEST_P(FaultStories, GiveEveryRequestTheTokensOfPlainDecodingOrOneError) {
  Told told;
  ASSERT_NO_FATAL_FAILURE(tell_stories(kFirst + 30 * GetParam(), kFirst + 30 * (GetParam() + 1), told));
  EXPECT_GT(told.hits, 10);
  EXPECT_GT(told.crashed, 0);
  EXPECT_GT(told.losses, 0);
  EXPECT_GT(told.replays, 0);
  EXPECT_GT(told.reads, 1000);
}

INSTANTIATE_TEST_SUITE_P(Thirties, FaultStories, ::testing::Range<uint64_t>(0, 10));

// For bench/fault_stories: those from SLUICE_STORIES_FROM to SLUICE_STORIES_TO.
TEST(AskedFaultStories, SayHowManyTheyWere) {
  const char* const from = std::getenv("SLUICE_STORIES_FROM");
  const char* const to = std::getenv("SLUICE_STORIES_TO");
  if (from == nullptr || to == nullptr) GTEST_SKIP() << "bench/fault_stories asks for them";
  Told told;
  tell_stories(kFirst + std::strtoull(from, nullptr, 10), kFirst + std::strtoull(to, nullptr, 10), told);
  std::printf("told %lld crashed %lld losses %lld replays %lld hits %lld flushes %lld reads %lld\n",
              static_cast<long long>(told.stories), static_cast<long long>(told.crashed),
              static_cast<long long>(told.losses), static_cast<long long>(told.replays),
              static_cast<long long>(told.hits), static_cast<long long>(told.flushes),
              static_cast<long long>(told.reads));
}

// The checker itself: a cell that is given out while somebody still reads it is noticed.
Batch one_row(int64_t batch, int32_t cell, int32_t parent) {
  Batch b{.id = BatchId(batch), .updates = {}, .rows = {}};
  b.rows.push_back({.sequence = SequenceId(0), .token = 1, .cell = Cell(cell), .parent = Cell(parent), .index = 0});
  return b;
}

TEST(CellWatch, NoticesARowThatReadsACellAfterItHasBecomeAnothers) {
  CellWatch watch;
  const auto submit = [&](const Batch& b) { watch.submitted(kTarget, b); };
  const auto compute = [&](const Batch& b) { watch.computed(kTarget, StageId(0), b); };
  const Batch root = one_row(0, 0, -1), child = one_row(1, 1, 0), another = one_row(2, 0, -1);
  submit(root), submit(child), submit(another);
  compute(root), compute(child), compute(another);
  EXPECT_EQ(watch.trouble(), "");
  EXPECT_EQ(watch.reads(), 1);
  const Batch late = one_row(3, 2, 1);  // its grandparent's cell is another's
  submit(late);
  compute(late);
  EXPECT_NE(watch.trouble().find("over cell 0"), std::string::npos) << watch.trouble();
}

TEST(CellWatch, NoticesARowWhoseParentWasNeverComputed) {
  CellWatch watch;
  watch.submitted(kTarget, one_row(0, 0, -1));
  watch.submitted(kTarget, one_row(1, 1, 0));
  watch.computed(kTarget, StageId(0), one_row(1, 1, 0));
  EXPECT_NE(watch.trouble(), "");
}

}  // namespace
}  // namespace sluice

// A thousand random pipelines, clusters, mixes of requests, moments and interruptions on a simulated clock.
#include <gtest/gtest.h>

#include "exactness/story.h"

namespace sluice {
namespace {

using namespace test;

// Ten tests of a hundred stories, so that they run side by side.
class RandomStories : public ::testing::TestWithParam<uint64_t> {};

class TellsItsStory : public ::testing::Environment {
  void SetUp() override { tell_story_when_aborted(); }
};
[[maybe_unused]] const auto* const tells = ::testing::AddGlobalTestEnvironment(new TellsItsStory);

TEST_P(RandomStories, GiveEveryRequestTheTokensOfPlainDecoding) {
  int64_t hits = 0, flushes = 0, shared = 0;
  for (uint64_t seed = 100 * GetParam(); seed < 100 * (GetParam() + 1); ++seed) {
    Story story(seed);
    ASSERT_NO_FATAL_FAILURE(story.run());
    hits += story.hits;
    flushes += story.flushes;
    shared += story.shared;
  }
  EXPECT_GT(hits, 100);
  EXPECT_GT(flushes, 100);
  EXPECT_GT(shared, 100);
}

INSTANTIATE_TEST_SUITE_P(Hundreds, RandomStories, ::testing::Range<uint64_t>(0, 10));

}  // namespace
}  // namespace sluice

#include "train/jobs.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace sluice::test {
namespace {

std::vector<PromptGroup> groups() {
  PromptGroup large{"large", {}}, small{"small", {}};
  for (int i = 0; i < 400; ++i) large.prompts.push_back("large " + std::to_string(i));
  for (int i = 0; i < 25; ++i) small.prompts.push_back("small " + std::to_string(i));
  return {large, small};
}

TEST(JobList, IsTheSameEveryTimeAndAnotherWithAnotherSeed) {
  const auto prompts = groups();
  JobList a(prompts, 10, {0, 1}, 7), b(prompts, 10, {0, 1}, 7), c(prompts, 10, {0, 1}, 8);
  bool differs = false;
  for (int i = 0; i < 100; ++i) {
    const auto x = a.next(), y = b.next(), z = c.next();
    EXPECT_EQ(x->id, static_cast<uint64_t>(i));
    EXPECT_EQ(x->prompt, y->prompt);
    EXPECT_EQ(x->temperature, y->temperature);
    differs |= x->prompt != z->prompt;
  }
  EXPECT_TRUE(differs);
}

TEST(JobList, GroupsTakeTurnsByTheRootOfTheirSize) {
  const auto prompts = groups();
  JobList jobs(prompts, 100, {0, 1}, 7);
  std::map<std::string, int> uses;
  for (int i = 0; i < 70; ++i) {
    const auto job = jobs.next();
    ++uses[job->prompt == nullptr ? "self" : job->prompt->substr(0, 5)];
  }
  EXPECT_EQ(uses, (std::map<std::string, int>{{"large", 40}, {"small", 10}, {"self", 20}}));
}

TEST(JobList, NoPromptIsAnsweredGreedilyTwice) {
  const auto prompts = groups();
  JobList jobs(prompts, 5, {0, 1}, 7);
  std::map<std::pair<const std::string*, float>, int> uses;
  int self = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto job = jobs.next();
    if (job->prompt == nullptr)
      ++self;
    else
      ++uses[{job->prompt, job->temperature}];
  }
  EXPECT_EQ(self, 5);
  for (const auto& [use, n] : uses)
    if (use.second == 0) {
      EXPECT_EQ(n, 1);
    }
  JobList greedy(prompts, 0, {0}, 7);
  int n = 0;
  while (greedy.next()) ++n;
  EXPECT_EQ(n, 425);
}

TEST(Split, OnePromptInFiftyIsHeldOut) {
  int held_out = 0;
  for (int i = 0; i < 5000; ++i) held_out += split_of("prompt " + std::to_string(i)) == Split::kHeldOut;
  EXPECT_GT(held_out, 60);
  EXPECT_LT(held_out, 150);
}

TEST(JobList, EveryOpeningHasItsShareOfThePromptsThatTheTargetWrites) {
  const std::vector<PromptGroup> prompts = {{"a", {"one"}}};
  JobList jobs(prompts, 20, {0}, 7, 3);
  std::map<size_t, int> count;
  while (const auto job = jobs.next()) {
    if (job->prompt == nullptr) ++count[job->opening];
  }
  EXPECT_EQ(count, (std::map<size_t, int>{{0, 20}, {1, 20}, {2, 20}}));
}

}  // namespace
}  // namespace sluice::test

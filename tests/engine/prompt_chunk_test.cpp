// How many rows of prompts enter at a time.
#include "engine/prompt_chunk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/policy.h"
#include "support/harness.h"

namespace sluice::test {
namespace {

// Seconds of a pass of so many rows: so much whatever they are, and so much each.
struct Pass {
  double once, row;
  double operator()(int32_t rows) const { return once + row * rows; }
};

PassTimes seen(const Pass& pass, std::initializer_list<int32_t> widths) {
  PassTimes times;
  for (int i = 0; i < 3; ++i)
    for (const int32_t rows : widths) times.saw(rows, pass(rows));
  return times;
}

// When the last of equal stages is through with `rows` rows in batches of `chunk`: each takes a batch when it is free
// and the one before has done it.
double played(size_t rows, size_t stages, size_t chunk, const Pass& pass) {
  std::vector<double> free(stages, 0.0);
  for (size_t left = rows; left > 0; left -= std::min(left, chunk)) {
    const double seconds = pass(static_cast<int32_t>(std::min(left, chunk)));
    double there = 0.0;
    for (double& stage : free) there = stage = std::max(stage, there) + seconds;
  }
  return free.back();
}

TEST(PromptChunk, IsAsGoodAsTheBestOfAll) {
  for (const double once : {0.0, 0.002, 0.02, 1.0})
    for (const size_t stages : {2, 4, 8, 16})
      for (const size_t rows : {100, 1000, 8000}) {
        const Pass pass{once, 0.001};
        const size_t chosen = prompt_chunk(rows, stages, seen(pass, {16, 32, 64, 128, 256}), 64, 256);
        double best = 1e300;
        for (size_t chunk = policy::kPromptQuantum; chunk <= 256; chunk += policy::kPromptQuantum)
          best = std::min(best, played(rows, stages, chunk, pass));
        EXPECT_LT(played(rows, stages, chosen, pass), 1.02 * best)
            << chosen << " rows of " << rows << " over " << stages << " stages, " << once << " seconds a pass";
      }
}

TEST(PromptChunk, BeginsNarrowAndWidensStepByStep) {
  const Pass flat{0.01, 0.0};
  EXPECT_EQ(prompt_chunk(8000, 4, {}, 64, 256), 32u);
  EXPECT_EQ(prompt_chunk(8000, 4, seen(flat, {32}), 64, 256), 64u);
  EXPECT_EQ(prompt_chunk(8000, 4, seen(flat, {32, 64}), 64, 256), 128u);
  EXPECT_EQ(prompt_chunk(8000, 4, seen(flat, {32, 64, 128, 256}), 64, 256), 256u);
  EXPECT_EQ(prompt_chunk(8000, 4, seen(flat, {1, 3}), 64, 256), policy::kPromptQuantum);
  EXPECT_EQ(prompt_chunk(8000, 4, seen(flat, {1, 3}), 64, 8), 8u) << "no more than may be";
  // Where the rows are all that costs, wider than was seen gains nothing.
  EXPECT_LE(prompt_chunk(8000, 4, seen({0.0, 0.001}, {16, 32}), 64, 256), 32u);
}

TEST(PromptChunk, OneShorterThanABatchIsDividedToo) {
  const PassTimes times = seen({0.001, 0.001}, {1, 16, 64, 256});
  EXPECT_LE(prompt_chunk(60, 8, times, 64, 256), 32u);
  EXPECT_EQ(prompt_chunk(5, 8, times, 64, 256), policy::kPromptQuantum);
}

// Simulated seconds to the first token.
double prefill(int32_t stages, size_t rows, const std::string& layer) {
  const auto context = static_cast<int32_t>(rows) + 8;
  const auto engine = make_engine(six_layers(), {.stages = stages,
                                                 .lazy = true,
                                                 .profile = R"({"layer": )" + layer + "}",
                                                 .context = context,
                                                 .n_cells = context + 1024,
                                                 .scheduler = {.prompt_chunk = 64, .longest_chunk = 256}});
  const RequestId id = submit(*engine, {.prompt = std::vector<Token>(rows, 97), .max_tokens = 2, .method = "ar"});
  finish(*engine);
  const RequestStats& stats = engine->request(id).stats;
  return stats.first_token - stats.submitted;
}

TEST(PromptChunk, SixStagesShareALongPrompt) {
  // As much as four rows whatever the rows; the best chunk of 3,000 rows over 6 stages loses an eighth.
  const std::string linear = R"({"points": [[1, 0.005], [257, 0.261]]})";
  EXPECT_GT(prefill(1, 3000, linear) / prefill(3, 3000, linear), 0.88 * 3);
  EXPECT_GT(prefill(1, 3000, linear) / prefill(6, 3000, linear), 0.82 * 6);
  // Wide passes cost no more than narrow ones: batches are as wide as may be.
  const std::string flat = R"({"points": [[1, 0.001]], "between": "step", "every": 100000, "add": 0})";
  EXPECT_LT(prefill(6, 3000, flat), 1.3 * 0.001 * (std::ceil(3000 / 256.0) + 5));
}

TEST(PromptChunk, WhoAnswersIsNotHeldUpByWideBatches) {
  const std::string flat = R"({"layer": {"points": [[1, 0.001]], "between": "step", "every": 100000, "add": 0}})";
  const PipelineSpec setup{.stages = 3,
                           .profile = flat,
                           .context = 2048,
                           .n_cells = 3 * 2048,
                           .scheduler = {.prompt_chunk = 64, .longest_chunk = 256},
                           .trace = true};
  const auto engine = make_engine(six_layers(), setup);
  const RequestId talks =
      submit(*engine, {.prompt = {97, 98, 99}, .max_tokens = 200, .method = "ar", .ignore_end = true});
  while (engine->request(talks).n_answer() < 4) ASSERT_TRUE(engine->step());
  const RequestSpec late{.prompt = std::vector<Token>(1500, 97), .max_tokens = 2, .method = "ar"};
  const RequestId asks = submit(*engine, late);
  while (engine->request(talks).finish == Finish::kNone) ASSERT_TRUE(engine->step());
  for (const TraceBatch& batch : engine->trace().batches) EXPECT_LE(batch.rows.size(), 65u);
  EXPECT_EQ(answer(*engine, asks), plain_decoding(six_layers(), late, KvType::kF16, setup.context));
}

// Beside who decodes plainly over six stages: every sixth batch has a row of his.
TEST(PromptChunk, PromptsBesideAnswersFillThePipelineAndHoldNobodyUp) {
  constexpr double kOnce = 0.004, kRow = 0.001;
  const std::string linear = R"({"layer": {"points": [[1, 0.005], [257, 0.261]]}})";
  const auto engine = make_engine(six_layers(), {.stages = 6,
                                                 .lazy = true,
                                                 .profile = linear,
                                                 .context = 4096,
                                                 .n_cells = 3 * 4096,
                                                 .scheduler = {.prompt_chunk = 64, .longest_chunk = 256}});
  const RequestId talks =
      submit(*engine, {.prompt = {97, 98, 99}, .max_tokens = 1000, .method = "ar", .ignore_end = true});
  while (engine->request(talks).n_answer() < 4) ASSERT_TRUE(engine->step());
  const RequestId asks =
      submit(*engine, {.prompt = std::vector<Token>(3000, 97), .max_tokens = 1, .method = "ar", .ignore_end = true});
  const size_t before = engine->request(talks).n_answer();
  while (engine->request(asks).n_answer() == 0) ASSERT_TRUE(engine->step());
  const RequestStats& stats = engine->request(asks).stats;
  const double took = stats.first_token - stats.submitted;
  // Six stages that do nothing else, and one that does all.
  EXPECT_LT(took, 1.3 * (3000 / 64.0 + 5) * (kOnce + 64 * kRow));
  const double tokens = static_cast<double>(engine->request(talks).n_answer() - before);
  EXPECT_LT(took / tokens, 1.1 * 6 * (kOnce + 65 * kRow)) << "a token waits for no more than six usual batches";
}

TEST(PromptChunk, IsTheLargestThatAGapLeavesRoomFor) {
  const Pass pass{0.004, 0.001};
  const PassTimes times = seen(pass, {1, 4, 8, 16, 32, 64, 128, 256});
  for (const size_t stages : {1, 3})
    for (const size_t beside : {1, 8})
      for (const double gap : {0.03, 0.1, 0.3, 3.0}) {
        const size_t rows = prompt_rows_within(gap, beside, stages, times, 256);
        const auto seconds = [&](size_t more) {
          return static_cast<double>(stages == 1 ? 1 : stages + 1) * pass(static_cast<int32_t>(beside + more));
        };
        EXPECT_TRUE(rows == 1 || seconds(rows) <= 1.02 * gap) << beside << " beside, " << stages << " stages";
        if (rows < 256) {
          EXPECT_GT(seconds(rows + policy::kPromptQuantum), gap);
        }
      }
  EXPECT_EQ(prompt_rows_within(1e-6, 1, 1, times, 256), 1u) << "a prompt gets on whatever it costs";
  EXPECT_EQ(prompt_rows_within(1.0, 1, 1, {}, 256), policy::kPromptQuantum) << "as long as nothing is known";
  EXPECT_EQ(prompt_rows_within(1.0, 1, 1, {}, 5), 5u);
  EXPECT_EQ(prompt_rows_within(1e9, 1, 1, seen(pass, {1}), 256), policy::kPromptQuantum) << "step by step";
}

TEST(PromptChunk, NoGapIsLongerThanItMayBe) {
  const std::string linear = R"({"layer": {"points": [[1, 0.005], [257, 0.261]]}})";  // six layers: 0.03 s a token
  for (const int stages : {1, 3}) {
    double before = 0.0;  // seconds that the prompt takes with the bound before
    for (const double gap : {0.3, 0.15, 0.075}) {
      const auto engine = make_engine(six_layers(), {.stages = stages,
                                                     .lazy = true,
                                                     .profile = linear,
                                                     .context = 4096,
                                                     .n_cells = 3 * 4096,
                                                     .scheduler = {.longest_chunk = 256, .longest_gap = gap}});
      const RequestId talks =
          submit(*engine, {.prompt = {97, 98, 99}, .max_tokens = 1000, .method = "ar", .ignore_end = true});
      while (engine->request(talks).n_answer() < 4) ASSERT_TRUE(engine->step());
      const RequestId asks =
          submit(*engine, {.prompt = std::vector<Token>(600, 97), .max_tokens = 1, .method = "ar", .ignore_end = true});
      double last = engine->now(), longest = 0.0;
      for (size_t n = engine->request(talks).n_answer(); engine->request(asks).n_answer() == 0;) {
        ASSERT_TRUE(engine->step());
        const size_t now = engine->request(talks).n_answer();
        if (std::exchange(n, now) == now) continue;
        longest = std::max(longest, engine->now() - last);
        last = engine->now();
      }
      EXPECT_LE(longest, 1.1 * gap) << stages << " stages";
      EXPECT_GE(longest, 0.6 * gap) << "what it may take is used";
      const RequestStats& stats = engine->request(asks).stats;
      const double took = stats.first_token - stats.submitted;
      EXPECT_GT(took, before) << "the price is the prompt's";
      before = took;
    }
  }
}

}  // namespace
}  // namespace sluice::test

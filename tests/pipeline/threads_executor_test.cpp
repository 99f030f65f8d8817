#include <gtest/gtest.h>

#include <map>

#include "pipeline/executor.h"
#include "support/harness.h"

namespace sluice {
namespace {

using namespace test;

Batch prompt_row(int32_t i) {
  Batch batch{.id = BatchId(i), .updates = {}, .rows = {}, .hidden = {}};
  if (i == 0) batch.updates.push_back(Open{SequenceId(0), {}});
  batch.rows.push_back({.sequence = SequenceId(0),
                        .token = 70,
                        .position = i,
                        .cell = sluice::Cell(i),
                        .parent = sluice::Cell(i - 1),
                        .kind = Row::Kind::kPrompt,
                        .index = 0});
  return batch;
}

// Reports by stage, outcomes as stage -1; until all have come.
std::map<int32_t, std::vector<StageReport>> run(Executor& executor, int32_t n_batches, size_t n_stages) {
  for (int32_t i = 0; i < n_batches; ++i) executor.submit(kTarget, prompt_row(i));
  std::map<int32_t, std::vector<StageReport>> seen;
  for (size_t events = static_cast<size_t>(n_batches) * (n_stages + 1); events > 0;) {
    const Event event = executor.next();
    if (const auto* report = std::get_if<StageReport>(&event)) {
      seen[report->stage.value].push_back(*report);
      --events;
    } else if (const auto* outcome = std::get_if<Outcome>(&event)) {
      seen[-1].push_back({StageId(), outcome->batch, executor.now(), executor.now(), 0});
      --events;
    }
  }
  return seen;
}

TEST(ThreadsExecutor, BatchesKeepTheirOrderAtEveryStage) {
  const auto executor = make_executor(six_layers(), {.stages = 6, .threads = true});
  EXPECT_FALSE(executor->simulated());
  const auto seen = run(*executor, 50, 6);
  for (const auto& [stage, reports] : seen) {
    ASSERT_EQ(reports.size(), 50u);
    for (int32_t i = 0; i < 50; ++i) EXPECT_EQ(reports[static_cast<size_t>(i)].batch, BatchId(i)) << "stage " << stage;
  }
}

TEST(ThreadsExecutor, KeepsAtLeastThePaceOfTheProfile) {
  const double stage = 0.002, latency = 0.003;
  const auto executor = make_executor(
      six_layers(), {.stages = 3,
                     .threads = true,
                     .paced = true,
                     .profile = R"({"stage": {"points": [[1, 0.002], [2, 0.002]]}, "link": {"latency": 0.003}})"});
  const auto seen = run(*executor, 8, 3);
  for (const auto& [s, reports] : seen) {
    for (size_t i = 0; i < reports.size(); ++i) {
      ASSERT_EQ(reports[i].batch, BatchId(static_cast<int32_t>(i)));
      if (s >= 0) {
        EXPECT_GE(reports[i].end - reports[i].begin, stage - 1e-6);
      }
      if (s > 0) {
        EXPECT_GE(reports[i].begin - seen.at(s - 1)[i].end, latency - 1e-6);
      }
    }
  }
  for (size_t i = 0; i < 8; ++i) EXPECT_GE(seen.at(-1)[i].end - seen.at(2)[i].end, latency - 1e-6);
}

// However late a thread wakes, frames are no closer to each other than the link lets them be.
TEST(ThreadsExecutor, APacedLinkSendsOneFrameAtATime) {
  const double frame = (64 + 4.0 * (32 + 8)) / 5e4;  // 4.5 ms
  const auto executor = make_executor(
      six_layers(), {.stages = 2,
                     .threads = true,
                     .paced = true,
                     .profile = R"({"stage": {"points": [[1, 1e-5], [2, 1e-5]]}, "link": {"bandwidth": 5e4}})"});
  const auto seen = run(*executor, 8, 2);
  const auto& sent = seen.at(0);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_GE(seen.at(1)[i].begin, sent[0].end + static_cast<double>(i + 1) * frame - 1e-6);
    EXPECT_NEAR(seen.at(1)[i].received, frame, 1e-9);
  }
}

TEST(ThreadsExecutor, PacedEdgesAreThoseOfTheProfile) {
  const auto executor = make_executor(
      six_layers(),
      {.stages = 2, .threads = true, .paced = true, .profile = R"({"stage": {"points": [[1, 1e-5], [2, 1e-5]]},
                       "edges": [{"latency": 0.01}, {"latency": 0.02}, {"latency": 0.04, "jitter": 0.25}]})"});
  const auto seen = run(*executor, 4, 2);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_GE(seen.at(0)[i].begin, 0.01 - 1e-6);
    EXPECT_GE(seen.at(1)[i].begin - seen.at(0)[i].end, 0.02 - 1e-6);
    EXPECT_GE(seen.at(-1)[i].end - seen.at(1)[i].end, 0.03 - 1e-6);
  }
}

TEST(ThreadsExecutor, CanBeLeftInTheMiddleOfItsWork) {
  const auto executor = make_executor(six_layers(), {.stages = 6, .threads = true});
  for (int32_t i = 0; i < 50; ++i) executor->submit(kTarget, prompt_row(i));
  executor->next();
}

}  // namespace
}  // namespace sluice

// Who watches an engine is told what its trace holds, without the texts.
#include "engine/step_log.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "support/harness.h"

namespace sluice::test {
namespace {

using FateOfBatch = std::pair<int64_t, Fate>;

TEST(StepLog, TellsWhatATraceHolds) {
  PipelineSpec setup{.stages = 3, .drafts = {&five_layers()}, .trace = true};
  const auto engine = make_engine(six_layers(), setup);
  StepLog log(1 << 20);
  engine->watch(&log);
  RequestSpec spec;
  spec.prompt = {1, 2, 3, 4, 5, 6};
  spec.max_tokens = 30;
  spec.ignore_end = true;
  spec.method = "specpipe";
  submit(*engine, spec);
  submit(*engine, spec);
  finish(*engine);
  const Trace trace = engine->trace();
  const Steps steps = log.take();
  EXPECT_EQ(steps.lost, 0u);

  ASSERT_EQ(steps.entered.size(), trace.batches.size());
  std::map<FateOfBatch, int32_t> fates, traced;
  for (size_t i = 0; i < trace.batches.size(); ++i) {
    const TraceBatch& batch = trace.batches[i];
    EXPECT_EQ(steps.entered[i].batch, batch.id);
    EXPECT_EQ(steps.entered[i].model, batch.model);
    EXPECT_EQ(steps.entered[i].prompt_rows + steps.entered[i].node_rows, static_cast<int32_t>(batch.rows.size()));
    for (const TraceRow& row : batch.rows)
      if (row.resolved >= 0) ++traced[{batch.id.value, row.fate}];
  }
  for (const Steps::Resolved& rows : steps.resolved) fates[{rows.batch.value, rows.fate}] += rows.rows;
  EXPECT_EQ(fates, traced);
  ASSERT_EQ(steps.spans.size(), trace.spans.size());
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    EXPECT_EQ(steps.spans[i].stage, trace.spans[i].stage);
    EXPECT_EQ(steps.spans[i].batch, trace.spans[i].batch);
    EXPECT_EQ(steps.spans[i].rows_computed, trace.spans[i].rows_computed);
  }
  int32_t tokens = 0, misses = 0, traced_misses = 0;
  for (const Steps::Came& came : steps.came) tokens += came.tokens, misses += came.hit ? 0 : 1;
  for (const TraceEmission& emission : trace.emissions) traced_misses += emission.hit ? 0 : 1;
  EXPECT_EQ(tokens, static_cast<int32_t>(trace.emissions.size()));
  EXPECT_EQ(misses > 0, traced_misses > 0);
  EXPECT_EQ(trace.header.stages, engine->trace_header().stages);
}

TEST(StepLog, IsToldNothingWhenNobodyWatchesAnyMore) {
  const auto engine = make_engine(six_layers(), {.stages = 2});
  StepLog log(1 << 20);
  engine->watch(&log);
  engine->watch(nullptr);
  RequestSpec spec;
  spec.prompt = {1, 2, 3};
  spec.max_tokens = 5;
  spec.method = "ar";
  submit(*engine, spec);
  finish(*engine);
  EXPECT_TRUE(log.take().empty());
}

TEST(StepLog, KeepsNoMoreThanItMayAndCountsTheRest) {
  StepLog log(3);
  for (int i = 0; i < 5; ++i) log.came(/*request=*/i, /*hit=*/true, /*now=*/1.0);
  log.resolved(BatchId(7), Fate::kAccepted, 1.0);
  Steps steps = log.take();
  EXPECT_EQ(steps.came.size(), 3u);
  EXPECT_EQ(steps.lost, 3u);
  EXPECT_TRUE(log.take().empty());
  // What goes together is one entry.
  for (int i = 0; i < 5; ++i) log.resolved(BatchId(7), Fate::kPruned, 2.0);
  log.came(1, true, 2.0);
  log.came(1, false, 2.0);
  steps = log.take();
  ASSERT_EQ(steps.resolved.size(), 1u);
  EXPECT_EQ(steps.resolved[0].rows, 5);
  ASSERT_EQ(steps.came.size(), 1u);
  EXPECT_EQ(steps.came[0].tokens, 2);
  EXPECT_FALSE(steps.came[0].hit);
  EXPECT_EQ(steps.lost, 0u);
}

}  // namespace
}  // namespace sluice::test

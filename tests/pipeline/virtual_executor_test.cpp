// The simulated clock, with one-row batches of a prompt going through.
#include <gtest/gtest.h>

#include <map>

#include "pipeline/executor.h"
#include "support/broken.h"
#include "support/harness.h"

namespace sluice {
namespace {

using namespace test;

Batch prompt_batch(int32_t i, int32_t rows = 1) {
  Batch batch{.id = BatchId(i), .updates = {}, .rows = {}, .hidden = {}};
  if (i == 0) batch.updates.push_back(Open{SequenceId(0), {}});
  for (int32_t r = 0; r < rows; ++r) {
    const int32_t at = i * rows + r;
    batch.rows.push_back({.sequence = SequenceId(0),
                          .token = 70,
                          .position = at,
                          .cell = sluice::Cell(at),
                          .parent = sluice::Cell(at - 1),
                          .kind = Row::Kind::kPrompt,
                          .index = static_cast<uint16_t>(r)});
  }
  return batch;
}

struct Seen {
  double time;
  int32_t stage;  // -1: an outcome
  int64_t batch;
  double begin, end;
  auto operator<=>(const Seen&) const = default;
};

// Everything that happens until `outcomes` of them have come.
std::vector<Seen> watch(Executor& executor, int outcomes) {
  std::vector<Seen> seen;
  while (outcomes > 0) {
    const Event event = executor.next();
    if (const auto* report = std::get_if<StageReport>(&event))
      seen.push_back({executor.now(), report->stage.value, report->batch.value, report->begin, report->end});
    if (const auto* outcome = std::get_if<Outcome>(&event)) {
      seen.push_back({executor.now(), -1, outcome->batch.value, 0, 0});
      --outcomes;
    }
  }
  return seen;
}

const char* const kSlowLinks =
    R"({"stage": {"points": [[1, 0.001], [2, 0.001]]}, "link": {"latency": 0.01, "bandwidth": 1e6}})";

TEST(VirtualExecutor, AdvancesItsClockByWhatTheStagesTake) {
  const auto executor = make_executor(six_layers(), {.stages = 3});
  EXPECT_EQ(executor->now(), 0.0);
  for (int32_t i = 0; i < 3; ++i) executor->submit(kTarget, prompt_batch(i));
  const auto seen = watch(*executor, 3);
  for (const Seen& s : seen) {
    if (s.stage >= 0) {  // batch b is at stage s in step b + s
      EXPECT_NEAR(s.begin, 0.001 * (s.batch + s.stage), 1e-12);
      EXPECT_NEAR(s.end, 0.001 * (s.batch + s.stage + 1), 1e-12);
      EXPECT_EQ(s.time, s.end);
    } else {
      EXPECT_NEAR(s.time, 0.001 * (s.batch + 3), 1e-12);
    }
  }
  EXPECT_TRUE(executor->simulated());
}

TEST(VirtualExecutor, LinksTakeTheirLatencyAndTheTimeOfTheirBytes) {
  const auto executor = make_executor(six_layers(), {.stages = 2, .profile = kSlowLinks});
  executor->submit(kTarget, prompt_batch(0));
  const auto seen = watch(*executor, 1);
  ASSERT_EQ(seen.size(), 3u);
  const double transfer = 0.01 + (64 + 4.0 * (32 + 8)) / 1e6, message = 0.01 + 64 / 1e6;
  EXPECT_NEAR(seen[1].begin, 0.001 + transfer, 1e-12);
  EXPECT_NEAR(seen[2].time, 0.001 + transfer + 0.001 + message, 1e-12);
}

// Three batches are ready for the link when it has carried none; they come out of it as far apart as their bytes take.
TEST(VirtualExecutor, ALinkSendsOneFrameAtATime) {
  const auto executor = make_executor(
      six_layers(),
      {.stages = 2,
       .profile = R"({"stage": {"points": [[1, 0], [2, 0]]}, "link": {"latency": 0.01, "bandwidth": 1e4}})"});
  for (int32_t i = 0; i < 3; ++i) executor->submit(kTarget, prompt_batch(i));
  const double frame = (64 + 4.0 * (32 + 8)) / 1e4, verdict = 64 / 1e4;
  for (const Seen& s : watch(*executor, 3)) {
    if (s.stage == 1) {
      EXPECT_NEAR(s.begin, frame * (s.batch + 1) + 0.01, 1e-12);
    } else if (s.stage < 0) {
      EXPECT_NEAR(s.time, frame * (s.batch + 1) + 0.01 + verdict + 0.01, 1e-12);
    }
  }
}

const char* const kEdges = R"({"stage": {"points": [[1, 0.001], [2, 0.001]]},
  "edges": [{"latency": 0.01}, {"latency": 0.02, "bandwidth": 1e6}, {"latency": 0.04}]})";

TEST(VirtualExecutor, EachEdgeIsALinkOfItsOwn) {
  const auto executor = make_executor(six_layers(), {.stages = 2, .profile = kEdges});
  executor->submit(kTarget, prompt_batch(0));
  std::vector<StageReport> reports;
  double told[2] = {}, outcome = 0;
  while (reports.size() < 2 || outcome == 0) {
    const Event event = executor->next();
    if (const auto* report = std::get_if<StageReport>(&event)) {
      told[report->stage.value] = executor->now();
      reports.push_back(*report);
    } else if (std::get_if<Outcome>(&event) != nullptr) {
      outcome = executor->now();
    }
  }
  const double bytes = (64 + 4.0 * (32 + 8)) / 1e6;
  EXPECT_NEAR(reports[0].begin, 0.01, 1e-12);
  EXPECT_NEAR(reports[1].begin, 0.011 + 0.02 + bytes, 1e-12);
  EXPECT_NEAR(outcome, reports[1].end + 0.04, 1e-12);
  EXPECT_NEAR(told[0], reports[0].end + 0.01, 1e-12) << "back the way that the batch came";
  EXPECT_NEAR(told[1], reports[1].end + 0.03 + 64 / 1e6, 1e-12) << "by way of stage 0, which is shorter";
  EXPECT_DOUBLE_EQ(reports[0].received, 0.0);
  EXPECT_NEAR(reports[1].received, bytes, 1e-12);
  EXPECT_EQ(reports[1].rows_received, 1);
}

TEST(VirtualExecutor, ReportsSayHowLongABatchLayBeforeTheStage) {
  const auto executor = make_executor(six_layers(), {.stages = 2, .profile = kEdges});
  for (int32_t i = 0; i < 3; ++i) executor->submit(kTarget, prompt_batch(i));
  for (int32_t seen = 0; seen < 3;) {
    const Event event = executor->next();
    const auto* report = std::get_if<StageReport>(&event);
    if (report == nullptr || report->stage != StageId(0)) continue;
    EXPECT_NEAR(report->waited, 0.001 * seen, 1e-12);
    EXPECT_EQ(report->batch, BatchId(seen++));
  }
}

// Work that ends, then the coordinator, then work that starts: so an amendment at the instant of a verdict spares the
// batches that would start then.
TEST(VirtualExecutor, AVerdictComesBeforeWhatStartsAtTheSameInstant) {
  const auto executor = make_executor(six_layers(), {.stages = 2});
  for (int32_t i = 0; i < 3; ++i) executor->submit(kTarget, prompt_batch(i));
  // Batch 0 leaves stage 1 at 2 ms, when batch 1 leaves stage 0, would enter stage 1, and batch 2 stage 0.
  std::vector<StageReport> reports;
  bool amended = false;
  while (reports.size() < 6) {
    const Event event = executor->next();
    if (const auto* report = std::get_if<StageReport>(&event)) reports.push_back(*report);
    if (std::get_if<Outcome>(&event) == nullptr || amended) continue;
    amended = true;
    EXPECT_NEAR(executor->now(), 0.002, 1e-12);
    while (const auto more = executor->poll()) {
      EXPECT_NEAR(executor->now(), 0.002, 1e-12);
      if (const auto* report = std::get_if<StageReport>(&*more)) reports.push_back(*report);
    }
    executor->amend(kTarget, {{{BatchId(2), 0}}});
  }
  for (const StageReport& report : reports) EXPECT_EQ(report.rows_computed, report.batch == BatchId(2) ? 0 : 1);
}

TEST(VirtualExecutor, KeepsEveryLinkInOrderWhateverTheJitter) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto executor = make_executor(
        six_layers(), {.stages = 3,
                       .profile = R"({"stage": {"points": [[1, 0.0001], [2, 0.0001]]}, "link": {"latency": 0.01}})",
                       .jitter = {.amount = 5.0, .seed = seed}});
    for (int32_t i = 0; i < 10; ++i) executor->submit(kTarget, prompt_batch(i));
    std::map<int32_t, int32_t> next;
    double time = 0;
    for (const Seen& s : watch(*executor, 10)) {
      EXPECT_EQ(s.batch, next[s.stage]++) << "stage " << s.stage << ", seed " << seed;
      EXPECT_GE(s.time, time);
      time = s.time;
    }
  }
}

TEST(VirtualExecutor, IsDeterministicAndJitterIsAFunctionOfItsSeed) {
  const auto run = [](uint64_t seed) {
    const auto executor =
        make_executor(six_layers(), {.stages = 3, .profile = kSlowLinks, .jitter = {.amount = 1.0, .seed = seed}});
    for (int32_t i = 0; i < 5; ++i) executor->submit(kTarget, prompt_batch(i));
    return watch(*executor, 5);
  };
  EXPECT_TRUE(run(1) == run(1));
  EXPECT_FALSE(run(1) == run(2));
}

TEST(VirtualExecutor, JitterKeepsWithinItsBounds) {
  const auto executor = make_executor(six_layers(), {.stages = 1, .jitter = {.amount = 0.5, .seed = 3}});
  for (int32_t i = 0; i < 100; ++i) executor->submit(kTarget, prompt_batch(i));
  double least = 1, most = 0;
  for (const Seen& s : watch(*executor, 100)) {
    if (s.stage < 0) continue;
    least = std::min(least, s.end - s.begin);
    most = std::max(most, s.end - s.begin);
  }
  EXPECT_GE(least, 0.001 / 1.5 - 1e-12);
  EXPECT_LE(most, 0.001 * 1.5 + 1e-12);
  EXPECT_LT(least, 0.0008);
  EXPECT_GT(most, 0.0013);
}

// A target of three stages of 1 ms and a draft model whose pass takes 0.4 ms.
PipelineSpec with_draft(Jitter jitter = {}) {
  return {.stages = 3,
          .drafts = {&two_layers()},
          .profile = R"({"stage": {"points": [[1, 0.001]]}, "draft": {"points": [[1, 0.0004]]}})",
          .jitter = jitter};
}

struct OfModel {
  int32_t model;
  int64_t batch;
  double begin, end;  // of a stage; an outcome: when it came
  bool outcome;
  auto operator<=>(const OfModel&) const = default;
};

std::vector<OfModel> watch_models(Executor& executor, int outcomes) {
  std::vector<OfModel> seen;
  while (outcomes > 0) {
    const Event event = executor.next();
    if (const auto* report = std::get_if<StageReport>(&event))
      seen.push_back({report->model.value, report->batch.value, report->begin, report->end, false});
    if (const auto* outcome = std::get_if<Outcome>(&event)) {
      seen.push_back({outcome->model.value, outcome->batch.value, executor.now(), executor.now(), true});
      --outcomes;
    }
  }
  return seen;
}

TEST(VirtualExecutor, ModelsWorkSideBySideEachAtItsOwnPace) {
  const auto executor = make_executor(six_layers(), with_draft());
  for (int32_t i = 0; i < 3; ++i) executor->submit(kTarget, prompt_batch(i));
  for (int32_t i = 0; i < 3; ++i) executor->submit(ModelId(1), prompt_batch(i));
  int32_t reports[2] = {}, outcomes[2] = {};
  double time = 0;
  for (const OfModel& s : watch_models(*executor, 6)) {
    EXPECT_GE(s.end, time) << "events come in the order of time";
    time = s.end;
    (s.outcome ? outcomes : reports)[s.model]++;
    if (s.model == 1) {
      EXPECT_NEAR(s.end, 0.0004 * (s.batch + 1), 1e-12);
    } else if (s.outcome) {
      EXPECT_NEAR(s.end, 0.001 * (s.batch + 3), 1e-12);
    }
  }
  EXPECT_EQ(reports[0], 8);  // the last one comes with the last outcome
  EXPECT_EQ(reports[1], 3);
  EXPECT_EQ(outcomes[0], 3);
  EXPECT_EQ(outcomes[1], 3);
}

// Stage 1 takes batches at 1, 2 and 3 ms, where nobody shares its device.
TEST(VirtualExecutor, WhoSharesADeviceTakesTurnsInTheOrderInWhichWorkCame) {
  PipelineSpec spec = with_draft();
  spec.profile = R"({"stage": {"points": [[1, 0.001]]}, "draft": {"points": [[1, 0.0004]]}, "draft_on": 1})";
  const auto executor = make_executor(six_layers(), spec);
  for (int32_t i = 0; i < 3; ++i) executor->submit(kTarget, prompt_batch(i));
  for (int32_t i = 0; i < 4; ++i) executor->submit(ModelId(1), prompt_batch(i));
  std::vector<double> drafts, outcomes;
  for (const OfModel& s : watch_models(*executor, 7))
    if (s.outcome) (s.model == 1 ? drafts : outcomes).push_back(s.end);
  // Four passes that came at 0, the third of them under way when the target's first batch comes.
  const std::vector<double> of_drafts = {0.0004, 0.0008, 0.0012, 0.0016}, of_target = {0.0036, 0.0046, 0.0056};
  for (size_t i = 0; i < of_drafts.size(); ++i) EXPECT_NEAR(drafts[i], of_drafts[i], 1e-12);
  for (size_t i = 0; i < of_target.size(); ++i) EXPECT_NEAR(outcomes[i], of_target[i], 1e-12);
}

TEST(VirtualExecutor, AnAmendmentConcernsItsModelAlone) {
  const auto executor = make_executor(six_layers(), with_draft());
  executor->submit(kTarget, prompt_batch(0));
  executor->submit(ModelId(1), prompt_batch(0));
  executor->amend(ModelId(1), {{{BatchId(0), 0}}});
  for (int32_t events = 0; events < 6;) {
    const Event event = executor->next();
    if (const auto* report = std::get_if<StageReport>(&event)) {
      EXPECT_EQ(report->rows_computed, report->model == kTarget ? 1 : 0);
      ++events;
    } else if (std::get_if<Outcome>(&event) != nullptr) {
      ++events;
    }
  }
}

TEST(VirtualExecutor, SeveralModelsAreDeterministicToo) {
  const auto run = [](uint64_t seed) {
    const auto executor = make_executor(six_layers(), with_draft({.amount = 2.0, .seed = seed}));
    for (int32_t i = 0; i < 6; ++i) {
      executor->submit(kTarget, prompt_batch(i));
      executor->submit(ModelId(1), prompt_batch(i));
    }
    return watch_models(*executor, 12);
  };
  EXPECT_TRUE(run(1) == run(1));
  EXPECT_FALSE(run(1) == run(2));
}

TEST(VirtualExecutor, WaitingForNothingIsABrokenInvariant) {
  const auto executor = make_executor(six_layers(), {.stages = 2});
  EXPECT_FALSE(executor->poll().has_value());
  EXPECT_BROKEN(executor->next(), "nothing under way");
}

}  // namespace
}  // namespace sluice

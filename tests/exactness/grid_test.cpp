// The promise: for one model, prompt, sampling and seed the tokens are the same for every method, number of stages,
// width and executor. Here the whole grid of them, on a narrow model of 30 layers.
#include <gtest/gtest.h>

#include "support/harness.h"
#include "support/trace_check.h"

namespace sluice {
namespace {

using namespace test;

RequestSpec request(float temperature, const std::string& method, int32_t width) {
  RequestSpec spec;
  for (const char c : std::string("one two one two one")) spec.prompt.push_back(3 + c);
  spec.sampling = {.temperature = temperature, .seed = 7};
  spec.max_tokens = 24;
  spec.method = method;
  spec.method_options.width = width;
  spec.ignore_end = true;
  return spec;
}

struct Cell {
  int32_t stages;
  bool threads;
};

class Grid : public ::testing::TestWithParam<Cell> {};

TEST_P(Grid, EveryWidthAndTemperatureGivesTheTokensOfPlainDecoding) {
  std::vector<PipelineSpec> setups = {{.stages = GetParam().stages, .threads = GetParam().threads, .trace = true}};
  if (GetParam()
          .threads) {  // so small a model's passes cost by the row: at a pace they don't, and guesses pay for sure
    setups.push_back(setups.front());
    setups.back().paced = true;
    setups.back().profile = R"({"stage": {"points": [[1, 0.001], [2, 0.001]]}})";
  }
  int64_t hits = 0, flushes = 0;
  for (const float temperature : {0.0f, 1.0f}) {
    const auto expected = plain_decoding(thirty_layers(), request(temperature, "ar", 1));
    const auto check = [&](const PipelineSpec& setup, const RequestSpec& spec) {
      const auto engine = make_engine(thirty_layers(), setup);
      const RequestId id = submit(*engine, spec);
      finish(*engine);
      const std::string where = describe(setup) + "; " + describe(spec);
      EXPECT_EQ(answer(*engine, id), expected) << where;
      EXPECT_EQ(check_fates(engine->trace()), "") << where;
      EXPECT_EQ(check_order(engine->trace(), /*promptly=*/!setup.threads), "") << where;
      if (!setup.threads) {
        EXPECT_EQ(check_cancels(engine->trace()), "") << where;
      }
      hits += engine->request(id).stats.accepted;
      flushes += engine->request(id).stats.flushes;
    };
    for (const PipelineSpec& setup : setups) {
      check(setup, request(temperature, "ar", 1));
      for (const int32_t width : {1, 4, 16, 64}) check(setup, request(temperature, "specpipe", width));
    }
  }
  // Else the tree was never used, or always right. (A single stage is free only when the verdict is there, and has no
  // use for guesses of one level.)
  if (GetParam().stages > 1) {
    EXPECT_GT(hits, 20);
  }
  EXPECT_GT(flushes, 20);
}

std::vector<Cell> cells() {
  std::vector<Cell> all;
  for (const int32_t stages : {1, 2, 3, 5, 6, 10, 15, 30})
    for (const bool threads : {false, true}) all.push_back({stages, threads});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Stages, Grid, ::testing::ValuesIn(cells()), [](const auto& cell) {
  return std::to_string(cell.param.stages) + (cell.param.threads ? "Threads" : "Virtual");
});

// The lazy computation is a study of the same schedule: nothing may differ but the work.
class Lazy : public ::testing::TestWithParam<int32_t> {};

TEST_P(Lazy, GivesTheScheduleAndTheTokensOfFull) {
  for (const float temperature : {0.0f, 1.0f}) {
    for (const auto& [method, width] : {std::pair{"ar", 1}, {"specpipe", 4}, {"specpipe", 64}}) {
      PipelineSpec setup{
          .stages = GetParam(),
          .profile = R"({"layer": {"points": [[1, 0.001], [16, 0.003]]}, "head": {"points": [[1, 0.002]]},
                                 "link": {"latency": 0.0007, "bandwidth": 1e7}})",
          .trace = true};
      const RequestSpec spec = request(temperature, method, width);
      const auto run = [&](bool lazy) {
        setup.lazy = lazy;
        auto engine = make_engine(thirty_layers(), setup);
        submit(*engine, spec);
        finish(*engine);
        return engine;
      };
      const auto full = run(false), lazy = run(true);
      const std::string where = describe(setup) + "; " + describe(spec);
      EXPECT_EQ(answer(*full, RequestId(0)), answer(*lazy, RequestId(0))) << where;
      EXPECT_EQ(difference(full->trace(), lazy->trace()), "") << where;
      EXPECT_EQ(full->figures(RequestId(0)).steps, lazy->figures(RequestId(0)).steps) << where;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, Lazy, ::testing::Values(1, 3, 10, 30));

}  // namespace
}  // namespace sluice

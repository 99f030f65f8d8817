// Lossy verification in the running pipeline: guesses that the target would not have said go on all the same.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "support/harness.h"

namespace sluice {
namespace {

using namespace test;

struct Ran {
  std::vector<Token> tokens;
  RequestStats stats;
};

RequestSpec ask(const std::string& method, Rule rule, float accept_p = 0.9f) {
  RequestSpec spec{.prompt = {5, 6, 7, 8, 9}, .max_tokens = 40, .method = method, .ignore_end = true};
  spec.sampling.rule = rule;
  spec.sampling.accept_p = accept_p;
  spec.method_options.width = 2;
  spec.sources = {SourceKind::kDraft};
  return spec;
}

Ran run(const RequestSpec& spec, PipelineSpec setup = {}) {
  setup.stages = 3;
  setup.drafts = {&two_layers()};
  const auto engine = make_engine(six_layers(), setup);
  const RequestId id = submit(*engine, spec);
  finish(*engine);
  return {answer(*engine, id), engine->request(id).stats};
}

class LossyMethods : public testing::TestWithParam<const char*> {};

TEST_P(LossyMethods, RelaxedFlushesLessForAnotherText) {
  const Ran exact = run(ask(GetParam(), Rule::kMatch)), relaxed = run(ask(GetParam(), Rule::kRelaxed));
  EXPECT_EQ(relaxed.tokens.size(), exact.tokens.size());
  EXPECT_NE(relaxed.tokens, exact.tokens);
  EXPECT_GT(exact.stats.flushes, 10);
  EXPECT_LT(relaxed.stats.flushes, exact.stats.flushes / 2);
  EXPECT_GT(relaxed.stats.accepted, exact.stats.accepted);
}

TEST_P(LossyMethods, TopPIsBetween) {
  const Ran exact = run(ask(GetParam(), Rule::kMatch));
  const Ran few = run(ask(GetParam(), Rule::kTopP, 0.01f)), many = run(ask(GetParam(), Rule::kTopP));
  EXPECT_EQ(few.tokens, exact.tokens);  // the likeliest token alone: greedy
  EXPECT_LT(many.stats.flushes, exact.stats.flushes);
}

TEST_P(LossyMethods, RunsOnThreadsAndWithLateMessages) {
  for (const Rule rule : {Rule::kRelaxed, Rule::kTopP}) {
    EXPECT_EQ(run(ask(GetParam(), rule), {.threads = true}).tokens.size(), 40u);
    for (uint64_t seed = 1; seed < 6; ++seed)
      EXPECT_EQ(run(ask(GetParam(), rule), {.jitter = {.amount = 0.9, .seed = seed}}).tokens.size(), 40u);
  }
}

// Only the committed path is computed, whoever chose it.
TEST_P(LossyMethods, LazyComputesTheSameText) {
  for (const Rule rule : {Rule::kRelaxed, Rule::kTopP})
    EXPECT_EQ(run(ask(GetParam(), rule), {.lazy = true}).tokens, run(ask(GetParam(), rule)).tokens);
}

TEST_P(LossyMethods, ALosslessNeighbourKeepsItsText) {
  const auto alone = run(ask(GetParam(), Rule::kMatch)).tokens;
  const auto engine = make_engine(six_layers(), {.stages = 3, .drafts = {&two_layers()}});
  const RequestId first = submit(*engine, ask(GetParam(), Rule::kRelaxed));
  const RequestId lossless = submit(*engine, ask(GetParam(), Rule::kMatch));
  const RequestId last = submit(*engine, ask(GetParam(), Rule::kTopP));
  finish(*engine);
  EXPECT_EQ(answer(*engine, lossless), alone);
  EXPECT_EQ(answer(*engine, first).size(), 40u);
  EXPECT_EQ(answer(*engine, last).size(), 40u);
}

TEST(LossySurge, RunsToItsEnd) {
  for (const bool threads : {false, true})
    for (const Rule rule : {Rule::kRelaxed, Rule::kTopP})
      EXPECT_EQ(run(ask("surge", rule), {.threads = threads}).tokens.size(), 40u);
}

INSTANTIATE_TEST_SUITE_P(, LossyMethods, testing::Values("specpipe", "sd", "specinfer"));

}  // namespace
}  // namespace sluice

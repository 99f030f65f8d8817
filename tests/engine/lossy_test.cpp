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

Ran run(const std::string& method, Rule rule, bool threads, float accept_p = 0.9f) {
  const auto engine = make_engine(six_layers(), {.stages = 3, .threads = threads, .drafts = {&two_layers()}});
  RequestSpec spec{.prompt = {5, 6, 7, 8, 9}, .max_tokens = 40, .method = method, .ignore_end = true};
  spec.sampling.rule = rule;
  spec.sampling.accept_p = accept_p;
  spec.method_options.width = 2;
  spec.sources = {"draft"};
  const RequestId id = submit(*engine, spec);
  finish(*engine);
  return {answer(*engine, id), engine->request(id).stats};
}

class LossyMethods : public testing::TestWithParam<const char*> {};

TEST_P(LossyMethods, RelaxedFlushesLessForAnotherText) {
  const Ran exact = run(GetParam(), Rule::kMatch, false), relaxed = run(GetParam(), Rule::kRelaxed, false);
  EXPECT_EQ(relaxed.tokens.size(), exact.tokens.size());
  EXPECT_NE(relaxed.tokens, exact.tokens);
  EXPECT_GT(exact.stats.flushes, 10);
  EXPECT_LT(relaxed.stats.flushes, exact.stats.flushes / 2);
  EXPECT_GT(relaxed.stats.accepted, exact.stats.accepted);
}

TEST_P(LossyMethods, TopPIsBetween) {
  const Ran exact = run(GetParam(), Rule::kMatch, false);
  const Ran few = run(GetParam(), Rule::kTopP, false, 0.01f), many = run(GetParam(), Rule::kTopP, false, 0.9f);
  EXPECT_EQ(few.tokens, exact.tokens);  // the likeliest token alone: greedy
  EXPECT_LT(many.stats.flushes, exact.stats.flushes);
}

TEST_P(LossyMethods, RunsOnThreads) {
  EXPECT_EQ(run(GetParam(), Rule::kRelaxed, true).tokens.size(), 40u);
  EXPECT_EQ(run(GetParam(), Rule::kTopP, true).tokens.size(), 40u);
}

TEST(LossySurge, RunsToItsEnd) {
  for (const bool threads : {false, true})
    for (const Rule rule : {Rule::kRelaxed, Rule::kTopP}) EXPECT_EQ(run("surge", rule, threads).tokens.size(), 40u);
}

INSTANTIATE_TEST_SUITE_P(, LossyMethods, testing::Values("specpipe", "sd", "specinfer"));

}  // namespace
}  // namespace sluice

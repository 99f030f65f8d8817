#include "engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "engine/ask.h"
#include "support/harness.h"
#include "support/trace_check.h"

namespace sluice {
namespace {

using namespace test;

std::vector<Token> alone(const RequestSpec& spec) { return plain_decoding(six_layers(), spec); }

// The answer of a request that has an engine for itself.
std::vector<Token> run(Engine& engine, const RequestSpec& spec) {
  const RequestId id = submit(engine, spec);
  finish(engine);
  return answer(engine, id);
}

std::string error_of(Engine& engine, const RequestSpec& spec) {
  const auto id = engine.submit(spec);
  if (id) return "";
  EXPECT_EQ(id.error().kind, ErrorKind::kInput);
  return id.error().message;
}

TEST(Engine, RequestsAtOnceAnswerAsAlone) {
  for (const bool threads : {false, true}) {
    const auto engine = make_engine(six_layers(), {.stages = 3, .threads = threads});
    RequestSpec specs[] = {ask("abcabcabcabcab", 40), ask("x", 7, "ar"), ask("to be or not to be or", 25)};
    specs[1].sampling = {.temperature = 1.0f, .top_k = 20, .seed = 4};
    specs[2].sampling = {.temperature = 0.7f, .top_p = 0.9f, .repeat_penalty = 1.2f, .seed = 9};
    std::vector<RequestId> ids;
    for (const auto& spec : specs) ids.push_back(submit(*engine, spec));
    finish(*engine);
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(answer(*engine, ids[i]), alone(specs[i])) << describe(specs[i]);
  }
}

// What it has learnt of sure guesses and of cheap rows makes it serve the next request otherwise.
TEST(Engine, ServesAsANewOneWhenItHasForgotten) {
  const PipelineSpec setup{
      .stages = 3, .drafts = {&five_layers()}, .profile = R"({"stage": {"points": [[1, 0.01], [2, 0.012], [16, 0.04]]},
                     "draft": {"points": [[1, 0.003], [16, 0.009]]}, "link": {"latency": 0.002, "bandwidth": 1e6}})"};
  const RequestSpec next = ask("to be or not to be or", 40, "surge");
  const auto seconds_of = [&](Engine& engine) {
    const RequestId id = submit(engine, next);
    finish(engine);
    EXPECT_EQ(answer(engine, id), alone(next));
    const double seconds = engine.figures(id).decode_seconds;
    engine.release(id);
    return seconds;
  };
  const double as_first = seconds_of(*make_engine(six_layers(), setup));
  const auto engine = make_engine(six_layers(), setup);
  run(*engine, ask("abcabcabcabc", 60, "specinfer"));
  EXPECT_GT(std::abs(seconds_of(*engine) / as_first - 1.0), 1e-3) << "it has learnt";
  ASSERT_TRUE(engine->forget());
  EXPECT_NEAR(seconds_of(*engine), as_first, 1e-6 * as_first);
  ASSERT_TRUE(engine->forget());
  ASSERT_TRUE(engine->forget()) << "nothing is left to wait for";
  EXPECT_NEAR(seconds_of(*engine), as_first, 1e-6 * as_first);
}

// Whatever the clock: the reports of what is still under way are waited for.
TEST(Engine, ForgetsWhenItsStagesAreThreadsToo) {
  const auto engine = make_engine(six_layers(), {.stages = 3, .threads = true});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(run(*engine, ask("abcabcabcabc", 20)), alone(ask("abcabcabcabc", 20)));
    ASSERT_TRUE(engine->forget());
    EXPECT_FALSE(engine->plain_rate_at_most()) << "what passes take";
  }
}

TEST(Engine, WaitsForATimeWithNothingRunning) {
  for (const bool threads : {false, true}) {
    const auto engine = make_engine(six_layers(), {.stages = 3, .threads = threads});
    const auto wait_until = [&](double time) {
      engine->wake_at(time + 1);  // the earlier one counts
      engine->wake_at(time);
      while (engine->now() < time) {
        if (!engine->busy()) engine->wake_at(time);
        ASSERT_TRUE(engine->step());
      }
      if (!threads) {
        EXPECT_EQ(engine->now(), time);
      }
    };
    wait_until(0.02);
    EXPECT_FALSE(engine->busy());
    const RequestId first = submit(*engine, ask("abcabcabc", 60));
    wait_until(engine->now() + 0.0105);  // in the middle of the answer
    const RequestId second = submit(*engine, ask("xyzxyz", 10));
    finish(*engine);
    EXPECT_EQ(answer(*engine, first), alone(ask("abcabcabc", 60)));
    EXPECT_EQ(answer(*engine, second), alone(ask("xyzxyz", 10)));
    EXPECT_GE(engine->request(second).stats.submitted - engine->request(first).stats.submitted, 0.0105 - 1e-9);
    wait_until(engine->now() + 0.02);  // what is left of the old requests does not count as the time
  }
}

TEST(Engine, ProgressTellsEveryTokenOnceAndTheEnd) {
  const auto engine = make_engine(six_layers(), {.stages = 2});
  const RequestId id = submit(*engine, ask("abcabcabc", 12));
  std::vector<Token> told;
  int ends = 0;
  while (engine->busy()) {
    const auto progress = engine->step();
    ASSERT_TRUE(progress);
    for (const Progress& p : *progress) {
      EXPECT_EQ(p.request, id);
      told.insert(told.end(), p.tokens.begin(), p.tokens.end());
      ends += p.finish == Finish::kLength;
    }
  }
  EXPECT_EQ(told, answer(*engine, id));
  EXPECT_EQ(ends, 1);
}

struct Turn {
  const char* name;
  size_t kept;                // tokens of the first turn that the second begins with
  std::vector<Token> beyond;  // what it goes on with
};

class Continues : public ::testing::TestWithParam<Turn> {};

TEST_P(Continues, TheNextTurnAnswersAsOneLongPrompt) {
  for (const float temperature : {0.0f, 1.0f}) {
    const auto engine = make_engine(six_layers(), {.stages = 3});
    const RequestId first = submit(*engine, ask("abcabcabc", 15));
    finish(*engine);
    const Request& before = engine->request(first);
    const auto text = before.tokens;
    const size_t computed = before.speculation.target.committed().size(), kept = std::min(GetParam().kept, text.size());
    RequestSpec next = ask("", 20);
    next.prompt.assign(text.begin(), text.begin() + static_cast<ptrdiff_t>(kept));
    next.prompt.insert(next.prompt.end(), GetParam().beyond.begin(), GetParam().beyond.end());
    next.sampling = {.temperature = temperature, .seed = 5};
    const auto expected = alone(next);
    next.continues = first;
    const RequestId second = submit(*engine, next);
    EXPECT_EQ(engine->request(second).stats.reused_tokens,
              static_cast<int64_t>(std::min({kept, computed, next.prompt.size() - 1})));
    finish(*engine);
    EXPECT_EQ(answer(*engine, second), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Overlap, Continues,
                         ::testing::Values(Turn{"Total", 1000, {}}, Turn{"TotalAndMore", 1000, {80, 81, 82}},
                                           Turn{"Partial", 12, {80, 81, 82, 80}}, Turn{"PromptOnly", 9, {80}},
                                           Turn{"APrefix", 4, {}}, Turn{"None", 0, {90, 91, 90}},
                                           Turn{"NoneOfOneToken", 0, {90}}),
                         [](const auto& turn) { return turn.param.name; });

TEST(Engine, ACancelledRequestKeepsWhatItSaidAndCanBeContinued) {
  const auto engine = make_engine(six_layers(), {.stages = 6});
  const RequestSpec spec = ask("abcabcabcabc", 100);
  const RequestId id = submit(*engine, spec);
  while (answer(*engine, id).size() < 5) ASSERT_TRUE(engine->step());
  engine->cancel(id);
  engine->cancel(id);  // no harm
  EXPECT_FALSE(engine->busy());
  EXPECT_EQ(engine->request(id).finish, Finish::kCancelled);
  const auto said = answer(*engine, id);
  auto expected = alone(spec);
  expected.resize(said.size());
  EXPECT_EQ(said, expected);

  RequestSpec next = ask("", 20);  // while the dead rows are still under way
  next.prompt = engine->request(id).tokens;
  const auto continued = alone(next);
  next.continues = id;
  EXPECT_EQ(run(*engine, next), continued);
}

TEST(Engine, CancelAndReleaseFreeAllCells) {
  // Room for one request and a few guesses: a leak of one cell a request would soon be felt.
  const auto engine = make_engine(six_layers(), {.stages = 3, .context = 64, .n_cells = 70});
  for (int round = 0; round < 120; ++round) {
    const RequestSpec spec = ask(round % 2 ? "abcabcabcabc" : "hello", 1000);
    const RequestId id = submit(*engine, spec);
    if (round % 3 == 0) {
      for (int i = 0; i < round && engine->busy(); ++i) ASSERT_TRUE(engine->step());
      engine->cancel(id);
    }
    finish(*engine);
    if (round % 3 != 0) {
      EXPECT_EQ(answer(*engine, id), plain_decoding(six_layers(), spec, KvType::kF16, 64));
      EXPECT_GT(engine->request(id).stats.drafted, 0) << "no cell was left for guesses in round " << round;
    }
    engine->release(id);
  }
}

TEST(Engine, ARequestWaitsForCellsThatOlderGuessesHold) {
  const auto engine = make_engine(six_layers(), {.stages = 6, .context = 64, .n_cells = 80});
  RequestSpec first = ask("abcabcabcabc", 20), second = ask("defdefdefdefdefdefdefdefdefdefdef", 15);
  first.method_options.width = 64;
  const RequestId a = submit(*engine, first);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(engine->step());
  const RequestId b = submit(*engine, second);
  finish(*engine);
  EXPECT_EQ(answer(*engine, a), plain_decoding(six_layers(), first, KvType::kF16, 64));
  EXPECT_EQ(answer(*engine, b), plain_decoding(six_layers(), second, KvType::kF16, 64));
}

TEST(Engine, AnswersOfOneTokenPromptsOfOneTokenAndFullContexts) {
  for (const char* method : {"ar", "specpipe"}) {
    const auto engine = make_engine(six_layers(), {.stages = 3, .context = 32});
    for (const auto& [length, max_tokens] :
         {std::pair{10, 1}, {1, 1}, {1, 12}, {1, 1000}, {31, 1}, {31, 9}, {20, 12}}) {
      const RequestSpec spec = ask(std::string(static_cast<size_t>(length), 'a'), max_tokens, method);
      const RequestId id = submit(*engine, spec);
      finish(*engine);
      const auto expected = plain_decoding(six_layers(), spec, KvType::kF16, 32);
      EXPECT_EQ(answer(*engine, id), expected) << describe(spec);
      EXPECT_EQ(expected.size(), static_cast<size_t>(std::min(max_tokens, 32 - length)));
      EXPECT_EQ(engine->request(id).finish, Finish::kLength);
      engine->release(id);
    }
  }
}

TEST(Engine, TheLargestNumbersAreNumbersLikeOthers) {
  const auto engine = make_engine(six_layers(), {.stages = 2, .context = 32});
  RequestSpec spec = ask("abcabcabc", std::numeric_limits<int32_t>::max());
  EXPECT_EQ(run(*engine, spec).size(), 32u - 9u);
}

TEST(Engine, StopsAtTheTokenThatEndsGeneration) {
  RequestSpec spec = ask("abcabcabc", 50);
  spec.ignore_end = false;
  spec.sampling.logit_bias = {{six_layers().tokenizer.eos(), 100.0f}};
  const auto engine = make_engine(six_layers(), {.stages = 2});
  EXPECT_EQ(run(*engine, spec), std::vector{six_layers().tokenizer.eos()});
  EXPECT_EQ(engine->request(RequestId(0)).finish, Finish::kStop);
}

TEST(Engine, RefusesWhatItCannotDoAndSaysWhy) {
  const auto engine = make_engine(six_layers(), {.stages = 2, .context = 32, .n_cells = 40});
  EXPECT_NE(error_of(*engine, ask("")).find("empty"), std::string::npos);
  EXPECT_NE(error_of(*engine, ask(std::string(32, 'a'))).find("--context"), std::string::npos);
  EXPECT_NE(error_of(*engine, ask("a", 0)).find("--max-tokens"), std::string::npos);
  EXPECT_NE(error_of(*engine, ask("a", 5, "magic")).find("--method"), std::string::npos);
  RequestSpec spec = ask("a", 5);
  spec.sources = {SourceKind::kDraft};
  EXPECT_NE(error_of(*engine, spec).find("--source"), std::string::npos);
  spec = ask("a", 5);
  spec.sampling.temperature = -1;
  EXPECT_NE(error_of(*engine, spec).find("temperature"), std::string::npos);
  spec = ask("a", 5);
  spec.method_options.width = 0;
  EXPECT_NE(error_of(*engine, spec).find("--width must be 1 to 256"), std::string::npos);
  for (const Token token : {-1, six_layers().tokenizer.size()}) {
    spec = ask("a", 5);
    spec.prompt.push_back(token);
    EXPECT_NE(error_of(*engine, spec).find("token " + std::to_string(token)), std::string::npos);
  }
  const auto small = make_engine(six_layers(), {.stages = 2, .context = 64, .n_cells = 40});
  EXPECT_NE(error_of(*small, ask("abc", 50)).find("40 cells"), std::string::npos);
  const RequestId id = submit(*engine, ask("abc", 20));
  finish(*engine);
  EXPECT_EQ(answer(*engine, id), alone(ask("abc", 20)));  // none of this did any harm
  engine->release(id);
  EXPECT_EQ(error_of(*engine, ask("abc", 20)), "");
}

TEST(Engine, SwitchingTheMethodNeverChangesTheTokens) {
  const auto engine = make_engine(six_layers(), {.stages = 3});
  const RequestSpec spec = ask("abcabcabcabc", 60, "ar");
  const RequestId id = submit(*engine, spec);
  for (int i = 0; engine->busy(); ++i) {
    ASSERT_TRUE(engine->step());
    if (i % 7 != 0 || !engine->busy()) continue;
    ASSERT_TRUE(engine->set_method(id, i % 2 ? "ar" : "specpipe", {}));
  }
  EXPECT_EQ(answer(*engine, id), alone(spec));
  EXPECT_GT(engine->request(id).stats.drafted, 0);
}

TEST(Engine, AFailedSwitchLeavesTheMethodAsItWas) {
  const auto engine = make_engine(six_layers(), {.stages = 3});
  const RequestSpec spec = ask("abcabcabcabc", 20, "ar");
  const RequestId id = submit(*engine, spec);
  EXPECT_FALSE(engine->set_method(id, "magic", {}));
  EXPECT_FALSE(engine->set_method(id, "specpipe", {SourceKind::kDraft}));
  finish(*engine);
  EXPECT_EQ(answer(*engine, id), alone(spec));
  EXPECT_EQ(engine->request(id).stats.drafted, 0);
}

TEST(Figures, PlainDecodingTakesAsManyStepsATokenAsThereAreStages) {
  for (const int32_t stages : {1, 2, 6}) {
    const auto engine = make_engine(six_layers(), {.stages = stages});
    const RequestId id = submit(*engine, ask("abcabcabc", 20, "ar"));
    finish(*engine);
    const RequestFigures figures = engine->figures(id);
    EXPECT_NEAR(figures.steps, stages * 19.0, 1e-6);  // K = n N, N = 19 tokens after the first
    EXPECT_NEAR(figures.equivalent_acceptance_length, 1.0, 1e-9);
    EXPECT_NEAR(figures.decode_seconds, 0.001 * stages * 19.0, 1e-9);
    EXPECT_NEAR(figures.prefill_seconds, 0.001 * (stages + 1), 1e-9);  // the prompt rows, then the root behind them
    ASSERT_EQ(figures.stage_utilisation.size(), static_cast<size_t>(stages));
    for (const double busy : figures.stage_utilisation) EXPECT_NEAR(busy, 1.0 / stages, 1e-9);
  }
}

TEST(Figures, SpecPipeGivesAlmostATokenAStepWhenTheTextRepeatsItself) {
  RequestSpec spec = ask(std::string(40, 'a'), 150);
  spec.sampling.logit_bias = {{3 + 'a', 1000.0f}};  // it will go on like that
  const auto engine = make_engine(six_layers(), {.stages = 6});
  const RequestId id = submit(*engine, spec);
  finish(*engine);
  const RequestFigures figures = engine->figures(id);
  EXPECT_EQ(engine->request(id).stats.flushes, 0);
  EXPECT_NEAR(figures.steps, 149.0, 1e-6);  // one token a step
  EXPECT_NEAR(figures.equivalent_acceptance_length, 6.0, 1e-6);
  EXPECT_EQ(engine->request(id).stats.accepted, 149);  // all but the last, of which nobody guesses
}

TEST(Figures, CountWhatEnteredWasHitAndMissed) {
  const auto engine = make_engine(six_layers(), {.stages = 3, .trace = true});
  const RequestId id = submit(*engine, ask("abcabcabcabcab", 50));
  finish(*engine);
  const RequestStats& stats = engine->request(id).stats;
  EXPECT_EQ(stats.accepted + stats.flushes, 49);  // of the last token nobody guesses
  EXPECT_EQ(std::accumulate(stats.runs.begin(), stats.runs.end(), int64_t{0}), stats.accepted);
  EXPECT_EQ(stats.runs.size(), static_cast<size_t>(stats.flushes) + 1);
  const Trace trace = engine->trace();
  int64_t guesses = 0, flushes = 0;
  for (const auto& batch : trace.batches)
    for (const auto& row : batch.rows) guesses += row.node.valid();
  for (const auto& emission : trace.emissions) flushes += !emission.hit;
  EXPECT_EQ(flushes, stats.flushes);
  EXPECT_LE(stats.drafted, guesses);
  EXPECT_GE(stats.drafted, guesses - flushes - 1);  // roots of flushes are no guesses, nor is the first
  EXPECT_EQ(trace.emissions.size(), 50u);
}

TEST(TraceOfARun, EveryRowHasOneFateAndNoStageIdlesWhileARowWaits) {
  for (const auto& [stages, width] : {std::pair{1, 4}, {3, 1}, {6, 4}, {6, 16}}) {
    RequestSpec spec = ask("abcabcabcabcab", 50);
    spec.method_options.width = width;
    const auto engine = make_engine(six_layers(), {.stages = stages, .trace = true});
    const RequestId id = submit(*engine, spec);
    finish(*engine);
    const Trace trace = engine->trace();
    EXPECT_EQ(check_order(trace, true), "") << describe(spec);
    EXPECT_EQ(check_fates(trace), "") << describe(spec);
    EXPECT_EQ(check_cancels(trace), "") << describe(spec);

    // The first stage idles only when the tree has come to the answer's last position, and until the next flush.
    const int32_t last_position = engine->request(id).speculation.last_position;
    for (size_t b = 1; b < trace.batches.size(); ++b) {
      const auto before = std::find_if(trace.spans.begin(), trace.spans.end(), [&](const TraceSpan& span) {
        return span.stage == StageId(0) && span.batch == trace.batches[b - 1].id;
      });
      ASSERT_NE(before, trace.spans.end());
      if (trace.batches[b].submitted <= before->end + 1e-12) continue;
      EXPECT_EQ(trace.batches[b - 1].rows.back().position, last_position) << "batch " << b << "; " << describe(spec);
    }
  }
}

// An engine that has served for months: nothing but the batches' numbers tells it from a fresh one.
TEST(Engine, BatchesMayHaveAnyNumber) {
  constexpr int64_t kFirst = (int64_t{1} << 31) - 5;
  for (const bool threads : {false, true}) {
    const RequestSpec spec = ask("abcabcabcabc", 30);
    const auto engine = make_engine(
        six_layers(),
        {.stages = 3, .threads = threads, .drafts = {&five_layers()}, .trace = true, .first_batch = kFirst});
    const RequestId id = submit(*engine, spec);
    finish(*engine);
    EXPECT_EQ(answer(*engine, id), alone(spec));
    RequestSpec more = spec;
    more.prompt = answer(*engine, id);
    more.continues = id;
    EXPECT_EQ(run(*engine, more), alone(more));
    const Trace trace = engine->trace();
    ASSERT_GT(trace.batches.size(), 10u);
    for (size_t i = 0; i < trace.batches.size(); ++i)
      ASSERT_EQ(trace.batches[i].id.value, kFirst + static_cast<int64_t>(i));
  }
}

TEST(Engine, RunsTheSameTwice) {
  const auto run_once = [] {
    const auto engine = make_engine(six_layers(), {.stages = 3, .jitter = {.amount = 1.0, .seed = 4}, .trace = true});
    submit(*engine, ask("abcabcabcabc", 30));
    submit(*engine, ask("defdef", 30));
    finish(*engine);
    return engine->trace();
  };
  EXPECT_EQ(difference(run_once(), run_once()), "");
}

}  // namespace
}  // namespace sluice

// Many requests at once: who waits for whom, what breaks whom.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/ask.h"
#include "support/harness.h"
#include "support/spy.h"

namespace sluice {
namespace {

using namespace test;

std::vector<Token> alone(const RequestSpec& spec, int32_t context = 256) {
  return plain_decoding(six_layers(), spec, KvType::kF16, context);
}

// An engine whose executor can be listened to.
struct Heard {
  Spy* spy = nullptr;
  std::unique_ptr<Engine> engine;

  Heard(const Opened& opened, const PipelineSpec& setup)
      : engine(make_engine(opened, setup, [this](std::unique_ptr<Executor> executor) {
          auto wrapped = std::make_unique<Spy>(std::move(executor));
          spy = wrapped.get();
          return wrapped;
        })) {}
};

// A step costs more with every 64 rows, as on a GPU.
constexpr const char* kSteps = R"({"name": "steps", "description": "made up", "source": "made up",
  "stage": {"points": [[1, 0.01]], "between": "step", "every": 64, "add": 0.002},
  "draft": {"points": [[1, 0.004]], "between": "step", "every": 64, "add": 0.001},
  "link": {"latency": 1e-5, "bandwidth": 1e10}})";

// --- failures
// ---------------------------------------------------------------------------------------------------------

TEST(Failures, WhatBreaksARequestEndsThatRequestAlone) {
  Heard heard(six_layers(), {.stages = 3});
  const RequestSpec one = ask("abcabcabcabc", 30), other = ask("to be or not to be", 30);
  const RequestId broken = submit(*heard.engine, one), well = submit(*heard.engine, other);
  const SequenceId victim = heard.engine->request(broken).sequence;
  bool done = false;
  heard.spy->on_event = [&](Event& event) {  // a verdict on a row that was never there
    auto* outcome = std::get_if<Outcome>(&event);
    if (outcome == nullptr || done || heard.engine->request(broken).n_answer() < 5) return;
    for (Accepted& accepted : outcome->accepted)
      if (accepted.sequence == victim && !std::exchange(done, true)) accepted.cell = Cell(accepted.cell.value + 1);
  };
  Finish told = Finish::kNone;
  while (heard.engine->busy()) {
    const auto progress = heard.engine->step();
    ASSERT_TRUE(progress) << progress.error().message;
    for (const Progress& p : *progress)
      if (p.request == broken) told = p.finish;
  }
  ASSERT_TRUE(done);
  EXPECT_EQ(heard.engine->request(broken).finish, Finish::kFailed);
  EXPECT_EQ(told, Finish::kFailed);
  EXPECT_NE(heard.engine->request(broken).error.message.find("the target's last stage verifies the root"),
            std::string::npos)
      << heard.engine->request(broken).error.message;
  EXPECT_EQ(answer(*heard.engine, well), alone(other));
  RequestSpec like_it = one, after_it = one;  // in what is left, and with nothing of what broke
  like_it.shares = broken;
  after_it.continues = broken;
  for (const RequestSpec& spec : {like_it, after_it}) {
    const RequestId next = submit(*heard.engine, spec);
    finish(*heard.engine);
    EXPECT_EQ(answer(*heard.engine, next), alone(one));
    EXPECT_EQ(heard.engine->request(next).stats.reused_tokens, 0);
    heard.engine->release(next);
  }
}

TEST(Failures, ABrokenRequestCanBeReleased) {
  Heard heard(six_layers(), {.stages = 3});
  const RequestSpec spec = ask("abcabcabcabc", 30);
  const RequestId broken = submit(*heard.engine, spec);
  heard.spy->on_event = [&](Event& event) {
    if (auto* outcome = std::get_if<Outcome>(&event))
      for (Accepted& accepted : outcome->accepted) accepted.cell = Cell(accepted.cell.value + 1);
  };
  finish(*heard.engine);
  EXPECT_EQ(heard.engine->request(broken).finish, Finish::kFailed);
  heard.engine->release(broken);
  heard.spy->on_event = {};
  const RequestId next = submit(*heard.engine, spec);
  finish(*heard.engine);
  EXPECT_EQ(answer(*heard.engine, next), alone(spec));
}

// The cells of one that broke are nobody's until it is released.
TEST(Failures, WhatFailsWhileItIsSubmittedIsToldByTheNextStep) {
  Heard heard(six_layers(), {.stages = 1, .context = 32, .n_cells = 40});
  const RequestId broken = submit(*heard.engine, ask("abc", 25));
  heard.spy->on_event = [&](Event& event) {
    if (auto* outcome = std::get_if<Outcome>(&event))
      for (Accepted& accepted : outcome->accepted) accepted.cell = Cell(accepted.cell.value + 1);
  };
  finish(*heard.engine);
  ASSERT_EQ(heard.engine->request(broken).finish, Finish::kFailed);
  heard.spy->on_event = {};
  const RequestId next = submit(*heard.engine, ask("abc", 25));
  ASSERT_TRUE(heard.engine->busy()) << "who is to say it?";
  const auto said = heard.engine->step();
  ASSERT_TRUE(said && said->size() == 1);
  EXPECT_EQ(said->front().request, next);
  EXPECT_EQ(said->front().finish, Finish::kFailed);
  EXPECT_FALSE(heard.engine->busy());
}

TEST(Failures, AFailedWorkerEndsTheEngineWithItsErrorForGood) {
  for (const bool threads : {false, true}) {
    Heard heard(six_layers(), {.stages = 2, .threads = threads});
    const RequestId id = submit(*heard.engine, ask("abcabcabc"));
    int events = 0;
    heard.spy->on_event = [&](Event& event) {
      if (++events == 6) event = WorkerFailed{Error{ErrorKind::kRuntime, "stage 1 failed: its disk is gone"}};
    };
    Result<std::vector<Progress>> step = std::vector<Progress>();
    for (int i = 0; i < 1000 && step; ++i) step = heard.engine->step();
    ASSERT_FALSE(step);
    EXPECT_EQ(step.error().message, "stage 1 failed: its disk is gone");
    EXPECT_FALSE(heard.engine->busy());
    EXPECT_EQ(heard.engine->request(id).finish, Finish::kFailed);
    for (int i = 0; i < 3; ++i) {
      const auto again = heard.engine->step();
      ASSERT_FALSE(again);
      EXPECT_EQ(again.error().message, step.error().message);
    }
    const auto refused = heard.engine->submit(ask("abc"));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message, step.error().message);
    heard.engine->cancel(id);  // no harm
    heard.engine->release(id);
  }
}

TEST(Failures, AWorkerThatBreaksAnInvariantEndsTheEngineWithItsError) {
  for (const bool threads : {false, true}) {
    const auto breaks = [](std::unique_ptr<Executor> executor) {  // names a parent that is not the token before
      auto spy = std::make_unique<Spy>(std::move(executor));
      spy->on_submit = [n = 0](ModelId, Batch& batch) mutable {
        if (++n == 4 && !batch.rows.empty()) batch.rows[0].position += 1;
      };
      return spy;
    };
    const auto engine = make_engine(six_layers(), {.stages = 2, .threads = threads}, breaks);
    submit(*engine, ask("abcabcabc"));
    Result<std::vector<Progress>> step = std::vector<Progress>();
    for (int i = 0; i < 1000 && step; ++i) step = engine->step();
    ASSERT_FALSE(step);
    EXPECT_NE(step.error().message.find("a parent is not the token before its child"), std::string::npos)
        << step.error().message;
    ASSERT_FALSE(engine->step());
  }
}

// --- the queue
// --------------------------------------------------------------------------------------------------------

TEST(Queue, RequestsThatFindNoCellsWaitForThemInTheirTurn) {
  const auto engine = make_engine(six_layers(), {.stages = 2, .context = 64, .n_cells = 90});  // room for two
  std::vector<RequestSpec> specs;
  for (const char* text : {"abcabcabc", "hello hello", "x y z x y z", "defdefdef", "to be or not"})
    specs.push_back(ask(text, 25));
  std::vector<RequestId> ids;
  for (const RequestSpec& spec : specs) ids.push_back(submit(*engine, spec));
  EXPECT_EQ(engine->waiting(), 3u);
  std::vector<RequestId> ended;
  while (engine->busy()) {
    const auto progress = engine->step();
    ASSERT_TRUE(progress);
    for (const Progress& p : *progress) {
      if (p.finish == Finish::kNone) continue;
      ended.push_back(p.request);
      EXPECT_EQ(answer(*engine, p.request), alone(specs[static_cast<size_t>(p.request.value)], 64));
      engine->release(p.request);
    }
  }
  ASSERT_EQ(ended.size(), ids.size());
  EXPECT_LT(std::max(ended[0], ended[1]), *std::min_element(ended.begin() + 2, ended.end()));
}

TEST(Queue, FinishedRequestsGiveUpTheirCellsWhenTheyAreNeeded) {
  const auto engine = make_engine(six_layers(), {.stages = 2, .context = 64, .n_cells = 90});
  const RequestSpec first = ask("abcabcabc", 25);
  const RequestId kept = submit(*engine, first);
  finish(*engine);
  std::vector<RequestId> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(submit(*engine, ask("hello" + std::to_string(i), 30)));
  finish(*engine);  // nobody released anything
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(answer(*engine, ids[static_cast<size_t>(i)]), alone(ask("hello" + std::to_string(i), 30), 64));
  EXPECT_EQ(answer(*engine, kept), alone(first, 64));
  RequestSpec next = ask("", 10);  // its history is computed again
  next.prompt = engine->request(kept).tokens;
  const auto expected = alone(next, 64);
  next.continues = kept;
  const RequestId second = submit(*engine, next);
  finish(*engine);
  EXPECT_EQ(engine->request(second).stats.reused_tokens, 0);
  EXPECT_EQ(answer(*engine, second), expected);
  for (const RequestId id : ids) engine->release(id);
  engine->release(second);
  const RequestId last = submit(*engine, first);  // nothing has leaked
  finish(*engine);
  EXPECT_EQ(answer(*engine, last), alone(first, 64));
}

TEST(Queue, WhoWaitsCanBeCancelledAndContinuedFrom) {
  const auto engine = make_engine(six_layers(), {.stages = 2, .context = 64, .n_cells = 70});
  const RequestSpec spec = ask("abcabcabc", 40);
  const RequestId first = submit(*engine, spec), waits = submit(*engine, ask("hello", 40));
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(engine->step());
  engine->cancel(waits);
  EXPECT_EQ(engine->request(waits).finish, Finish::kCancelled);
  EXPECT_EQ(engine->waiting(), 0u);
  RequestSpec goes_on = ask("hello hello", 20);
  goes_on.continues = waits;
  const RequestId last = submit(*engine, goes_on);
  finish(*engine);
  EXPECT_EQ(answer(*engine, first), alone(spec, 64));
  goes_on.continues.reset();
  EXPECT_EQ(answer(*engine, last), alone(goes_on, 64));
}

TEST(Queue, HasABoundAndSaysSo) {
  const auto engine = make_engine(six_layers(), {.stages = 1, .context = 32, .n_cells = 40});
  submit(*engine, ask("abc", 25));
  for (size_t i = 0; i < EngineOptions().most_waiting; ++i) submit(*engine, ask("abc", 25));
  const auto refused = engine->submit(ask("abc", 25));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kRuntime);
  EXPECT_NE(refused.error().message.find("queue is full"), std::string::npos);
  const auto never = engine->submit(ask(std::string(20, 'a'), 60));
  EXPECT_FALSE(never);
}

// --- who gets rows
// ----------------------------------------------------------------------------------------------------

TEST(Turns, APromptGetsOnWhateverNodesWant) {
  PipelineSpec setup{.stages = 4, .profile = kSteps, .context = 256, .n_cells = 20 * 256 + 4096};
  setup.scheduler = {.row_budget = 64, .prompt_chunk = 32};
  const auto engine = make_engine(six_layers(), setup);
  for (int i = 0; i < 16; ++i) {
    RequestSpec spec = ask("abcabcabcabc" + std::to_string(i), 200);
    spec.method_options.width = 16;
    submit(*engine, spec);
  }
  while (engine->now() < 1.0) ASSERT_TRUE(engine->step());
  const RequestId late = submit(*engine, ask(std::string(100, 'q'), 5));
  const double begin = engine->now();
  while (engine->request(late).n_answer() == 0) ASSERT_TRUE(engine->step());
  // Of 64 rows a quarter: seven batches of prompt, and the pipeline's length.
  EXPECT_LT(engine->now() - begin, 20 * 0.014) << "seconds to the first token";
}

TEST(Turns, ALongPromptDoesNotHoldUpAShortOne) {
  const auto engine =
      make_engine(six_layers(), {.stages = 2, .profile = kSteps, .scheduler = {.row_budget = 64, .prompt_chunk = 32}});
  const RequestId longer = submit(*engine, ask(std::string(240, 'q'), 3));
  const RequestId shorter = submit(*engine, ask("abcdefghij", 3));
  while (engine->request(shorter).n_answer() == 0) ASSERT_TRUE(engine->step());
  EXPECT_GT(engine->request(longer).prompt_rows_left(kTarget), 60u);
}

// Of equal requests that came at the same time none takes half as long again as another.
TEST(Turns, EqualRequestsAreServedAlike) {
  for (const int n : {3, 16, 40}) {
    PipelineSpec setup{.stages = 3, .profile = kSteps, .context = 128, .n_cells = n * 128 + 2000};
    setup.scheduler = {.row_budget = 32, .prompt_chunk = 16};
    const auto engine = make_engine(six_layers(), setup);
    std::vector<RequestId> ids;
    RequestSpec spec = ask("abcabcabcabcabcabcabc", 60);
    spec.method_options.width = 16;
    for (int i = 0; i < n; ++i) ids.push_back(submit(*engine, spec));
    finish(*engine);
    double shortest = 1e300, longest = 0;
    for (const RequestId id : ids) {
      const RequestStats& stats = engine->request(id).stats;
      shortest = std::min(shortest, stats.last_token - stats.submitted);
      longest = std::max(longest, stats.last_token - stats.submitted);
      EXPECT_EQ(answer(*engine, id), alone(spec, 128));
    }
    EXPECT_LT(longest, 1.5 * shortest) << n << " requests";
  }
}

TEST(Turns, MoreRequestsThanABatchHasRows) {
  for (const char* method : {"ar", "sd"}) {  // of sd the draft model has no room for all questions
    PipelineSpec setup{.stages = 2, .drafts = {&two_layers()}, .profile = kSteps, .context = 16, .n_cells = 300 * 16};
    const auto engine = make_engine(six_layers(), setup);
    std::vector<RequestId> ids;
    for (int i = 0; i < 300; ++i) ids.push_back(submit(*engine, ask("abc", 6, method)));
    finish(*engine);
    double first = 1e300, last = 0;
    for (const RequestId id : ids) {
      EXPECT_EQ(answer(*engine, id), alone(ask("abc", 6), 16));
      first = std::min(first, engine->request(id).stats.last_token);
      last = std::max(last, engine->request(id).stats.last_token);
    }
    EXPECT_LT(last, 2.5 * first) << method;
  }
}

// The draft model has no cells left for its trees: all roots go on alone, and they are more than a batch holds.
TEST(Turns, MoreRootsGoOnAloneThanABatchHasRows) {
  PipelineSpec setup{.stages = 1, .drafts = {&two_layers()}, .profile = kSteps, .context = 16, .n_cells = 40 * 15};
  setup.scheduler = {.row_budget = 8, .prompt_chunk = 8};
  Heard heard(six_layers(), setup);
  std::map<int32_t, size_t> widest;
  heard.spy->on_submit = [&](ModelId model, const Batch& batch) {
    widest[model.value] = std::max(widest[model.value], batch.rows.size());
  };
  std::vector<RequestId> ids;
  RequestSpec spec = ask("abcdefghi", 6, "specinfer");
  spec.method_options.branching = {4, 4, 4};
  for (int i = 0; i < 40; ++i) ids.push_back(submit(*heard.engine, spec));
  finish(*heard.engine);
  for (const RequestId id : ids) EXPECT_EQ(answer(*heard.engine, id), alone(ask("abcdefghi", 6), 16));
  EXPECT_LE(widest[0], 8u);
  EXPECT_LE(widest[1], 8u);
}

TEST(Turns, TheRowsOfARequestLieSideBySide) {
  Heard heard(six_layers(), {.stages = 2, .profile = kSteps});
  size_t mixed = 0;
  heard.spy->on_submit = [&](ModelId, const Batch& batch) {
    std::set<SequenceId> seen;
    for (size_t i = 0; i < batch.rows.size(); ++i) {
      if (i > 0 && batch.rows[i].sequence == batch.rows[i - 1].sequence) continue;
      EXPECT_TRUE(seen.insert(batch.rows[i].sequence).second) << "batch " << batch.id.value;
    }
    mixed += seen.size() > 1 && batch.rows.size() > seen.size();
  };
  for (const char* text : {"abcabcabc", "to be or not to be", "xyzxyzxyzx"}) submit(*heard.engine, ask(text, 120));
  finish(*heard.engine);
  EXPECT_GT(mixed, 5u);
}

// --- what a row costs
// -------------------------------------------------------------------------------------------------

// Beyond eight rows each costs as much as a whole pass: a guess pays alone, not beside seven others.
constexpr const char* kDear = R"({"name": "dear", "description": "made up", "source": "made up",
  "stage": {"points": [[1, 0.01], [8, 0.01], [9, 0.02], [64, 0.57], [256, 2.5]]},
  "draft": {"points": [[1, 0.0001]]}, "link": {"latency": 1e-6, "bandwidth": 1e12}})";

double tokens_per_second(const std::string& method, int n_requests) {
  PipelineSpec setup{.stages = 1, .profile = kDear, .context = 128, .n_cells = n_requests * 128 + 2000};
  const auto engine = make_engine(six_layers(), setup);
  for (int i = 0; i < n_requests; ++i) {
    RequestSpec spec = ask("abcabcabcabcabcabcabc" + std::to_string(i), 100, method);
    spec.method_options.width = 16;
    submit(*engine, spec);
  }
  finish(*engine);
  return n_requests * 100 / engine->now();
}

TEST(Price, OfARowIsThatOfTheBatchThatAllShare) {
  for (const char* method : {"specpipe", "surge", "sd"}) {
    for (const int n : {1, 2, 8, 20}) {
      const double plain = tokens_per_second("ar", n), guessing = tokens_per_second(method, n);
      EXPECT_GT(guessing, 0.9 * plain) << method << ", " << n << " requests";
      RecordProperty(std::string(method) + std::to_string(n), std::to_string(guessing / plain));
    }
  }
}

// Where each row wakes experts of its own, a guess beside a root holds its verdict up at all stages; behind it, hardly.
TEST(Price, OfARowBesideARootIsThatOfAllStages) {
  constexpr const char* kExperts = R"({"name": "experts", "description": "made up", "source": "made up",
    "stage": {"points": [[1, 0.01], [256, 0.01]]}, "experts": {"of": 128, "used": 8, "share": 0.8},
    "draft": {"points": [[1, 0.0001]]}, "link": {"latency": 1e-6, "bandwidth": 1e12}})";
  const auto seconds = [&](const char* method, int32_t width) {
    double sum = 0.0;
    for (const char* text :
         {"abcabcabc", "to be or not to be", "the quick brown fox", "xyzxyzxyzx", "a b a c a d a e"}) {
      for (const float temperature : {0.0f, 0.5f, 1.0f}) {
        const auto engine = make_engine(six_layers(), {.stages = 6, .profile = kExperts, .n_cells = 3000});
        RequestSpec spec = ask(text, 150, method);
        spec.sampling.temperature = temperature;
        spec.method_options.width = width;
        submit(*engine, spec);
        finish(*engine);
        sum += engine->now();
      }
    }
    return sum;
  };
  const double plain = seconds("ar", 1), narrow = seconds("surge", 1), wide = seconds("surge", 16);
  EXPECT_LT(seconds("specpipe", 16), plain);
  EXPECT_LT(wide, plain);
  EXPECT_LT(wide, 1.03 * narrow) << "more rows may enter, but need not";
  RecordProperty("wide_over_narrow", std::to_string(wide / narrow));
}

// Where no guess pays the roots enter at every step none the less, all of them together.
TEST(Price, NeverKeepsARootOut) {
  PipelineSpec setup{.stages = 1, .profile = kDear, .context = 128, .n_cells = 9 * 128 + 2000};
  Heard heard(six_layers(), setup);
  size_t steps = 0, with_all = 0;
  heard.spy->on_submit = [&](ModelId, const Batch& batch) {
    std::set<SequenceId> seen;
    for (const Row& row : batch.rows)
      if (row.kind == Row::Kind::kNode) seen.insert(row.sequence);
    steps += !seen.empty();
    with_all += seen.size() == 9;
  };
  for (int i = 0; i < 9; ++i) {
    RequestSpec spec = ask("abcabcabcabcabcabcabc" + std::to_string(i), 60, "surge");
    spec.method_options.width = 16;
    submit(*heard.engine, spec);
  }
  finish(*heard.engine);
  EXPECT_GT(with_all, 30u);
  EXPECT_LE(steps, 75u) << "sixty tokens, some prompts before them and the last ones alone";
}

// Questions take the coordinator's time, and the first stage waits meanwhile.
TEST(Asking, StopsWhereItTakesLongerThanGuessesSaveAndTriesAgain) {
  Asking asking;
  int asked = 0;
  const auto batches = [&](int n, double saved) {
    for (int i = 0; i < n; ++i)
      if (asking.pays()) asking.learn(1.0, saved), ++asked;
    return std::exchange(asked, 0);
  };
  EXPECT_EQ(batches(100, 1.5), 100);
  EXPECT_LT(batches(100, 0.5), 15);
  EXPECT_LE(batches(660, 0.0), 20);
  EXPECT_GE(batches(660, 20.0), 600) << "worth it again";
}

// --- how full the pipeline is
// ------------------------------------------------------------------------------------------

// A stage takes what comes in order and as fast as it can: what a slow batch has held up would stay held up.
TEST(Depth, WhatASlowBatchHeldUpIsCaughtUpWith) {
  PipelineSpec setup{.stages = 4, .profile = kDear, .context = 256, .n_cells = 12 * 256 + 4096};
  Heard heard(six_layers(), setup);
  std::map<BatchId, double> submitted;
  heard.spy->on_submit = [&](ModelId, const Batch& batch) { submitted[batch.id] = heard.engine->now(); };
  std::vector<double> ways;
  heard.spy->on_event = [&](const Event& event) {
    if (const auto* outcome = std::get_if<Outcome>(&event))
      ways.push_back(heard.engine->now() - submitted[outcome->batch]);
  };
  for (int i = 0; i < 6; ++i) {
    RequestSpec spec = ask("abcabcabcabc" + std::to_string(i), 100, "specpipe");
    spec.method_options.width = 2;
    submit(*heard.engine, spec);
  }
  while (ways.size() < 60) ASSERT_TRUE(heard.engine->step());
  RequestSpec late = ask(std::string(100, 'x'), 1, "ar");
  submit(*heard.engine, late);
  while (ways.size() < 80) ASSERT_TRUE(heard.engine->step());
  ways.clear();
  while (ways.size() < 60) ASSERT_TRUE(heard.engine->step());
  std::sort(ways.begin(), ways.end());
  EXPECT_LT(ways[30], 4.5 * 0.01) << "four stages, a hundredth of a second each";
}

// --- what a model is told
// ---------------------------------------------------------------------------------------------

TEST(News, AModelThatIsAskedForNothingIsToldNothingAfterwardsEither) {
  Heard heard(six_layers(), {.stages = 2, .drafts = {&two_layers()}});
  size_t told = 0;
  heard.spy->on_submit = [&](ModelId model, const Batch& batch) {
    if (model != kTarget) told = std::max(told, batch.updates.size());
  };
  std::optional<RequestId> chat;
  for (int i = 0; i < 50; ++i) {
    RequestSpec spec = ask("abc", 3, "ar");
    const RequestId passing = submit(*heard.engine, spec);
    spec.continues = chat;
    chat = submit(*heard.engine, spec);
    finish(*heard.engine);
    heard.engine->release(passing);
  }
  RequestSpec spec = ask("abcabc", 10, "sd");
  spec.continues = chat;
  const RequestId last = submit(*heard.engine, spec);
  finish(*heard.engine);
  EXPECT_EQ(answer(*heard.engine, last), alone(ask("abcabc", 10)));
  EXPECT_GT(told, 0u);
  EXPECT_LE(told, 8u);  // the opening, and what has been committed since
}

// --- switching
// --------------------------------------------------------------------------------------------------------

TEST(SetMethod, TakesTheSourcesThatAreNamed) {
  const auto engine = make_engine(six_layers(), {.stages = 2, .drafts = {&two_layers()}});
  const RequestId id = submit(*engine, ask("abcabcabc", 200, "specpipe"));
  const auto sources = [&] { return engine->request(id).source_name(); };
  EXPECT_EQ(sources(), "draft");
  ASSERT_TRUE(engine->set_method(id, "specpipe", {SourceKind::kNgram}));
  EXPECT_EQ(sources(), "ngram");
  ASSERT_TRUE(engine->step());
  ASSERT_TRUE(engine->set_method(id, "surge", {SourceKind::kNgram, SourceKind::kDraft}));
  EXPECT_EQ(sources(), "ngram+draft");
  ASSERT_TRUE(engine->set_method(id, "specpipe", {SourceKind::kDraft}));
  EXPECT_EQ(sources(), "draft");
  ASSERT_FALSE(engine->set_method(id, "specpipe", {SourceKind::kHead}));
  finish(*engine);
  EXPECT_EQ(answer(*engine, id), alone(ask("abcabcabc", 200)));
}

TEST(SetMethod, GivesTheMethodItsFallbackAndItsText) {
  const auto engine = make_engine(six_layers(), {.stages = 2, .drafts = {&two_layers()}});
  RequestSpec spec = ask("abcabcabc", 100, "specpipe");
  spec.method_options.fallback = Fallback::kNgram;
  const RequestId id = submit(*engine, spec);
  ASSERT_TRUE(engine->set_method(id, "ssd", {}));
  EXPECT_EQ(engine->request(id).source_name(), "draft,ngram");
  EXPECT_EQ(engine->request(id).speculation.n_sources, 2u);
  ASSERT_TRUE(engine->step());
  ASSERT_TRUE(engine->set_method(id, "surge", {}));
  EXPECT_EQ(engine->request(id).source_name(), "ngram+draft");
  ASSERT_TRUE(engine->set_method(id, "sd", {}));
  EXPECT_EQ(engine->request(id).source_name(), "draft");
  finish(*engine);
  EXPECT_EQ(answer(*engine, id), alone(ask("abcabcabc", 100)));
}

// As an engine does that comes after one that has crashed.
TEST(Engine, AnAnswerGoesOnFromWhatAnotherEngineHasSaid) {
  for (const char* method : {"ar", "sd", "specinfer", "specpipe", "surge", "pipespec", "ssd"}) {
    RequestSpec spec = ask("to be or not to be", 40, method);
    spec.sampling.temperature = 0.8f;
    spec.sampling.repeat_penalty = 1.1f;
    spec.sampling.presence_penalty = 0.3f;
    const std::vector<Token> whole = plain_decoding(six_layers(), spec);
    ASSERT_EQ(whole.size(), 40u);
    const auto engine = make_engine(six_layers(), {.stages = 3, .drafts = {&five_layers()}});
    for (const ptrdiff_t said : {1, 7, 39}) {
      spec.said = {whole.begin(), whole.begin() + said};
      const RequestId id = submit(*engine, spec);
      finish(*engine);
      EXPECT_EQ(answer(*engine, id), whole) << method << " from " << said;
      EXPECT_EQ(engine->request(id).n_generated(), static_cast<size_t>(40 - said));
      engine->release(id);
    }
    EXPECT_EQ(engine->held_cells(), 0u) << method;
  }
}

TEST(Engine, AnAnswerThatIsWholeAlreadyIsRefused) {
  const auto engine = make_engine(six_layers(), {});
  RequestSpec spec = ask("to be", 3);
  spec.said = {3, 4, 5};
  EXPECT_FALSE(engine->submit(spec));
  spec.said = {3, 1 << 20};
  EXPECT_FALSE(engine->submit(spec)) << "there is no such token";
  spec.max_tokens = 1000;
  spec.said.assign(251, 3);
  EXPECT_FALSE(engine->submit(spec)) << "it fills the context";
}

}  // namespace
}  // namespace sluice

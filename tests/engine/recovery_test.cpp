// Stages of the target are lost while requests run: they go on from their tokens, to the same ones.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "engine/ask.h"
#include "support/harness.h"
#include "support/spy.h"

namespace sluice {
namespace {

using namespace test;

std::vector<Token> alone(const RequestSpec& spec) { return plain_decoding(six_layers(), spec, KvType::kF16, 256); }

constexpr ModelId kDraft(1);

PipelineSpec losing(std::set<uint64_t> losses, double nobody = 0, ModelId whose = kTarget) {
  return {.stages = 3,
          .drafts = {&five_layers()},
          .faults = {.seed = 7, .longest = 0.02, .losses = std::move(losses), .whose = whose, .nobody = nobody},
          .trace = true};
}

TEST(LostStages, EveryMethodGoesOnToTheSameTokens) {
  for (const char* method : {"ar", "sd", "specinfer", "specpipe", "surge", "pipespec", "ssd"}) {
    const auto engine = make_engine(six_layers(), losing({40, 200, 201, 400}));
    RequestSpec spec = ask("to be or not to be", 40, method);
    spec.sampling.temperature = 0.8f;
    const RequestId id = submit(*engine, spec);
    finish(*engine);
    EXPECT_EQ(answer(*engine, id), alone(spec)) << method;
    EXPECT_GE(engine->request(id).stats.replays, 2) << method;
    engine->release(id);
    EXPECT_EQ(engine->held_cells(), 0u) << method;
  }
}

TEST(LostStages, OfADraftModelLetRequestsGoOnAndItReadsThem) {
  for (const char* method : {"sd", "specinfer", "specpipe", "surge", "pipespec", "ssd"}) {
    const auto engine = make_engine(six_layers(), losing({40, 200, 201, 400}, 0, kDraft));
    RequestSpec spec = ask("to be or not to be", 60, method), next = ask("to be or not to be that", 20, method);
    spec.sampling.temperature = next.sampling.temperature = 0.8f;
    const RequestId first = submit(*engine, spec);
    next.shares = first;
    const RequestId second = submit(*engine, next);
    finish(*engine);
    for (const auto& [id, asked] : {std::pair(first, spec), {second, next}}) {
      EXPECT_EQ(answer(*engine, id), alone(asked)) << method;
      EXPECT_EQ(engine->request(id).stats.replays, 0) << method;
      EXPECT_GT(engine->request(id).stats.accepted, 0) << method;
    }
    next.shares.reset();
    next.continues = second;
    next.prompt = engine->request(second).tokens;
    next.prompt.push_back(97);
    const RequestId third = submit(*engine, next);
    finish(*engine);
    EXPECT_EQ(answer(*engine, third), alone(next)) << method;
    for (const RequestId id : {first, third}) engine->release(id);
    EXPECT_EQ(engine->held_cells(), 0u) << method;
  }
}

// The device goes on with the draft model's passes, and takes the stage's that come in place of the lost ones.
TEST(LostStages, ADraftModelOnADeviceOfTheirsGoesOn) {
  PipelineSpec setup = losing({40, 200, 201, 400});
  setup.profile = R"({"stage": {"points": [[1, 0.001]]}, "draft": {"points": [[1, 0.0005]]}, "draft_on": 1,
                      "link": {"latency": 0.0001}})";
  const auto engine = make_engine(six_layers(), setup);
  const RequestSpec spec = ask("to be or not to be", 60, "surge");
  const RequestId id = submit(*engine, spec);
  finish(*engine);
  EXPECT_EQ(answer(*engine, id), alone(spec));
  EXPECT_GE(engine->request(id).stats.replays, 2);
}

TEST(LostStages, RequestsThatShareOrContinueOthersGoOnToo) {
  const auto engine = make_engine(six_layers(), losing({300, 500, 700}));
  const RequestSpec first = ask("abcabcabcabc", 10), other = ask("to be or not to be", 50);
  const RequestId done = submit(*engine, first);
  while (engine->request(done).finish == Finish::kNone) ASSERT_TRUE(engine->step());
  const RequestId running = submit(*engine, other);
  RequestSpec next = ask("abcabcabcabc", 50), like_it = ask("to be or not to be that", 50);
  next.continues = done;
  like_it.shares = running;
  const RequestId continued = submit(*engine, next), sharing = submit(*engine, like_it);
  const size_t begun = engine->request(running).n_answer();
  finish(*engine);
  EXPECT_LT(begun, 50u);
  for (const auto& [id, spec] : {std::pair(running, other), {continued, next}, {sharing, like_it}}) {
    EXPECT_EQ(answer(*engine, id), alone(spec));
    EXPECT_GE(engine->request(id).stats.replays, 1);
    engine->release(id);
  }
  EXPECT_EQ(engine->held_cells(), 0u);
}

TEST(LostStages, ATurnThatContinuesOneFromBeforeTheLossComputesAllAgain) {
  const auto engine = make_engine(six_layers(), losing({100}));
  RequestSpec first = ask("abcabcabcabc", 40);
  const RequestId before = submit(*engine, first);
  finish(*engine);
  ASSERT_GE(engine->request(before).stats.replays, 1);
  RequestSpec next = ask("abcabcabcabcabc", 20);
  next.continues = before;
  const RequestId after = submit(*engine, next);
  finish(*engine);
  EXPECT_EQ(answer(*engine, after), alone(next));
}

TEST(LostStages, WithoutRoomForTheirLayersEndAllRequestsAndTheNextOneLooksAgain) {
  const auto engine = make_engine(six_layers(), losing({150}, 1.0));
  const RequestSpec spec = ask("to be or not to be", 60);
  const RequestId one = submit(*engine, spec), two = submit(*engine, ask("abcabcabc", 60));
  std::vector<RequestId> told;
  while (engine->busy()) {
    const auto progress = engine->step();
    ASSERT_TRUE(progress) << progress.error().message;
    for (const Progress& p : *progress)
      if (p.finish == Finish::kFailed) told.push_back(p.request);
  }
  EXPECT_EQ(told, (std::vector{one, two}));
  std::vector<Token> expected = alone(spec);
  EXPECT_LT(answer(*engine, one).size(), expected.size());
  expected.resize(answer(*engine, one).size());
  EXPECT_EQ(answer(*engine, one), expected);
  EXPECT_NE(engine->request(two).error.message.find("nobody has room"), std::string::npos);
  const RequestId again = submit(*engine, spec);
  finish(*engine);
  EXPECT_EQ(answer(*engine, again), alone(spec));
  for (const RequestId id : {one, two, again}) engine->release(id);
  EXPECT_EQ(engine->held_cells(), 0u);
}

TEST(LostStages, BetweenTwoRequestsAreLookedForBeforeTheNextOne) {
  std::vector<uint32_t> resumed;
  bool lose = false;
  const auto engine = make_engine(six_layers(), losing({}), [&](std::unique_ptr<Executor> executor) {
    auto spy = std::make_unique<Spy>(std::move(executor));
    spy->on_event = [&](Event& event) {
      if (std::exchange(lose, false)) event = StagesLost{kTarget, {ErrorKind::kRuntime, "a host is gone"}, 7};
    };
    spy->on_resume = [&](ModelId, uint32_t generation) { resumed.push_back(generation); };
    return spy;
  });
  submit(*engine, ask("abcabcabc", 10));
  finish(*engine);
  lose = true;
  engine->wake_at(engine->now());  // nobody looks what has happened by then
  const RequestId id = submit(*engine, ask("to be or not to be", 20));
  EXPECT_EQ(resumed, std::vector<uint32_t>{7});
  EXPECT_EQ(engine->request(id).finish, Finish::kNone);
}

// As when the network of this host goes: a draft model's host is lost with the target's.
TEST(LostStages, OfSeveralModelsAreLookedForAgain) {
  std::vector<std::pair<ModelId, uint32_t>> resumed;
  const StagesLost lost[] = {{kTarget, {ErrorKind::kRuntime, "the target's host is gone"}, 3},
                             {ModelId(1), {ErrorKind::kRuntime, "the draft model's host is gone"}, 5}};
  size_t n_lost = 0;
  const auto engine = make_engine(six_layers(), losing({}), [&](std::unique_ptr<Executor> executor) {
    auto spy = std::make_unique<Spy>(std::move(executor));
    spy->on_event = [&](Event& event) {
      if (n_lost < std::size(lost)) event = lost[n_lost++];
    };
    spy->on_resume = [&](ModelId model, uint32_t generation) { resumed.emplace_back(model, generation); };
    return spy;
  });
  const RequestId id = submit(*engine, ask("to be or not to be", 60));
  while (n_lost < std::size(lost)) {
    engine->wake_at(engine->now());
    ASSERT_TRUE(engine->step());
  }
  EXPECT_EQ(engine->request(id).finish, Finish::kFailed);
  EXPECT_EQ(resumed.size(), 0u);
  submit(*engine, ask("to be or not to be", 60));
  EXPECT_EQ(resumed, (std::vector<std::pair<ModelId, uint32_t>>{{kTarget, 3}, {ModelId(1), 5}}));
}

TEST(LostStages, AreLookedForAlsoWhenNothingIsAskedFor) {
  std::vector<uint32_t> resumed;
  std::optional<Event> happens;
  const auto engine = make_engine(six_layers(), losing({}), [&](std::unique_ptr<Executor> executor) {
    auto spy = std::make_unique<Spy>(std::move(executor));
    spy->on_event = [&](Event& event) {
      if (happens) event = *std::exchange(happens, {});
    };
    spy->on_resume = [&](ModelId, uint32_t generation) { resumed.push_back(generation); };
    return spy;
  });
  submit(*engine, ask("to be or not to be", 60));
  happens = StagesLost{kTarget, {ErrorKind::kRuntime, "a host is gone"}, 3};
  while (engine->busy()) ASSERT_TRUE(engine->step());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(engine->look_for_stages());
    EXPECT_EQ(resumed, std::vector<uint32_t>{3}) << "once for each time that they were lost";
    EXPECT_TRUE(engine->lacks_stages()) << "nobody has been found";
  }
  happens = StagesReplaced{kTarget, 4};
  engine->wake_at(engine->now());
  ASSERT_TRUE(engine->look_for_stages());
  EXPECT_EQ(resumed, (std::vector<uint32_t>{3, 4}));
  EXPECT_FALSE(engine->lacks_stages());
}

TEST(LostStages, ARequestCanBeCancelledWhileNobodyIsInTheirPlace) {
  const auto engine = make_engine(six_layers(), losing({60}));
  const RequestId id = submit(*engine, ask("abcabcabc", 60));
  while (engine->request(id).stats.replays == 0) ASSERT_TRUE(engine->step());
  engine->cancel(id);
  EXPECT_FALSE(engine->busy());
  EXPECT_EQ(engine->request(id).finish, Finish::kCancelled);
  engine->release(id);
  EXPECT_EQ(engine->held_cells(), 0u);
}

constexpr int64_t kLongPrompt = 2000;

// Rows that each stage of a model computes in an answer to a long prompt, from the first loss of one of `whose` on.
std::map<StageId, int64_t> rows_after_loss(int64_t journal, const RequestSpec& spec, ModelId model = kTarget,
                                           ModelId whose = kTarget) {
  constexpr int32_t kContext = 2200;
  PipelineSpec setup = losing({700}, 0, whose);
  setup.context = kContext;
  setup.faults.journal = journal;
  std::map<StageId, int64_t> before, rows;
  bool lost = false;
  const auto engine = make_engine(six_layers(), setup, [&](std::unique_ptr<Executor> executor) {
    auto spy = std::make_unique<Spy>(std::move(executor));
    spy->on_event = [&](Event& event) {
      lost = lost || std::holds_alternative<StagesReplaced>(event);
      const auto* report = std::get_if<StageReport>(&event);
      if (report != nullptr && report->model == model) (lost ? rows : before)[report->stage] += report->rows_computed;
    };
    return spy;
  });
  const RequestId id = submit(*engine, spec);
  while (!lost) EXPECT_TRUE(engine->step());
  for (const auto& [stage, n] : before) EXPECT_GE(n, kLongPrompt) << "lost before it had read the prompt";
  EXPECT_GT(engine->request(id).n_answer(), 0u) << "lost before the answer began: the test is of no use";
  finish(*engine);
  EXPECT_EQ(answer(*engine, id), plain_decoding(six_layers(), spec, KvType::kF16, kContext));
  EXPECT_EQ(engine->request(id).stats.replays, whose == kTarget ? 1 : 0);
  return rows;
}

RequestSpec long_ask() {
  std::string text;
  while (text.size() < kLongPrompt) text += "to be or not to be, " + std::to_string(text.size());
  text.resize(kLongPrompt);
  return ask(text, 100, "surge");
}

TEST(LostStages, OnlyTheLostLayersComputeAgain) {
  for (const auto& [stage, rows] : rows_after_loss(0, long_ask())) EXPECT_GE(rows, kLongPrompt) << "without a journal";
  int lost = 0;
  for (const auto& [stage, rows] : rows_after_loss(1 << 20, long_ask())) {
    EXPECT_TRUE(rows >= kLongPrompt || rows < kLongPrompt / 2) << rows;
    lost += rows >= kLongPrompt;
  }
  EXPECT_EQ(lost, 1);
}

TEST(LostStages, ADraftModelThatIsHereComputesNothingAgain) {
  RequestSpec spec = long_ask();
  spec.method = "sd";  // which asks it few questions
  for (const auto& [stage, rows] : rows_after_loss(0, spec, kDraft)) EXPECT_LT(rows, kLongPrompt / 2);
}

TEST(LostStages, OfADraftModelLetTheTargetComputeNothingAgain) {
  for (const auto& [stage, rows] : rows_after_loss(0, long_ask(), kTarget, kDraft)) EXPECT_LT(rows, kLongPrompt);
  for (const auto& [stage, rows] : rows_after_loss(0, long_ask(), kDraft, kDraft)) EXPECT_GE(rows, kLongPrompt);
}

TEST(LostStages, WhatTheJournalHasNoRoomForIsComputedAgain) {
  const int64_t half = kLongPrompt / 2 * six_layers().model.hparams().d_model * int64_t{sizeof(float)};
  int64_t computed = 0;
  for (const auto& [stage, rows] : rows_after_loss(half, long_ask())) computed += rows;
  EXPECT_GT(computed, kLongPrompt + kLongPrompt / 2);
  EXPECT_LT(computed, 3 * kLongPrompt);
}

TEST(LostStages, RequestsFindTheirCellsAgain) {
  PipelineSpec setup = losing({700, 900});
  setup.faults.journal = 1 << 20;
  const auto engine = make_engine(six_layers(), setup);
  const RequestSpec one = ask("to be or not to be", 50), other = ask("abcabcabcabc", 50);
  RequestSpec sharing = ask("to be or not to be that", 50);
  const RequestId first = submit(*engine, one), second = submit(*engine, other);
  sharing.shares = first;
  const RequestId third = submit(*engine, sharing);
  finish(*engine);
  for (const auto& [id, spec] : {std::pair(first, one), {second, other}, {third, sharing}}) {
    EXPECT_EQ(answer(*engine, id), alone(spec));
    engine->release(id);
  }
  EXPECT_EQ(engine->held_cells(), 0u);
}

TEST(LostStages, TheRuleRejectGoesOn) {
  const auto engine = make_engine(six_layers(), losing({80, 160}));
  RequestSpec spec = ask("to be or not to be", 40, "sd");
  spec.sampling.temperature = 1.0f;
  spec.sampling.rule = Rule::kReject;
  const RequestId id = submit(*engine, spec);
  finish(*engine);
  EXPECT_EQ(answer(*engine, id).size(), 40u);
  EXPECT_GE(engine->request(id).stats.replays, 1);
}

}  // namespace
}  // namespace sluice

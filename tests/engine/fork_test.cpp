// Requests that share the cells of what their prompts have in common.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "engine/ask.h"
#include "support/harness.h"
#include "support/spy.h"
#include "support/tiny_head.h"

namespace sluice {
namespace {

using namespace test;

constexpr const char* kPrompt = "abcabcabcabc to be or not to be abcabc";

std::vector<Token> alone(const RequestSpec& spec) { return plain_decoding(six_layers(), spec); }

// Another answer to the prompt.
RequestSpec another(const RequestSpec& spec, uint32_t choice, RequestId shares) {
  RequestSpec other = spec;
  other.sampling.choice = choice;
  other.shares = shares;
  return other;
}

struct Way {
  std::string name, method;
  PipelineSpec setup;
};

const HeadFile& head(const std::string& kind) {
  static std::map<std::string, HeadFile> heads;
  if (const auto at = heads.find(kind); at != heads.end()) return at->second;
  TinyHeadSpec spec{.kind = kind, .cuts = {0, 2, 4, 6}};
  if (kind == "exit") spec.layers = {2};
  const std::string path = tiny_head(six_layers().model, spec).write(temp_path("fork-" + kind + ".gguf"));
  return heads.emplace(kind, HeadFile::open(path, six_layers().model).value()).first->second;
}

std::vector<Way> ways() {
  std::vector<Way> ways;
  for (const char* method : {"ar", "sd", "specinfer", "specpipe", "surge", "pipespec", "ssd"})
    ways.push_back({std::string(method), method, {.stages = 3, .drafts = {&five_layers()}}});
  for (const char* kind : {"spd", "eagle3", "p-eagle", "exit"})
    ways.push_back({"With_" + std::string(kind == std::string("p-eagle") ? "p_eagle" : kind), "", {.cuts = {2, 4}}});
  ways.push_back({"Lazy", "specpipe", {.stages = 3, .lazy = true, .drafts = {&five_layers()}}});
  ways.push_back({"Threads", "specpipe", {.stages = 3, .threads = true, .drafts = {&five_layers()}}});
  ways.push_back({"ThreadsPlain", "ar", {.stages = 3, .threads = true}});
  return ways;
}

class Fork : public ::testing::TestWithParam<Way> {
 protected:
  Fork() : setup_(GetParam().setup), spec_(ask(kPrompt, 40, GetParam().method)) {
    spec_.sampling = {.temperature = 1.0f, .top_k = 5, .seed = 3};
    const std::string& name = GetParam().name;
    if (!name.starts_with("With_")) return;
    const std::string kind = name == "With_p_eagle" ? "p-eagle" : name.substr(5);
    setup_.head = &head(kind);
    spec_.method = method_of(setup_.head->parameters().kind);
  }

  PipelineSpec setup_;
  RequestSpec spec_;
};

// Some end early, some are cancelled, some are cut and continued while others still run.
TEST_P(Fork, AnswersOfOnePromptAreThoseOfEachAlone) {
  const auto engine = make_engine(six_layers(), setup_);
  const RequestId first = submit(*engine, spec_);
  std::vector<RequestSpec> specs;
  std::vector<RequestId> ids;
  for (uint32_t i = 1; i <= 5; ++i) {
    specs.push_back(another(spec_, i, first));
    if (i == 2) specs.back().max_tokens = 3;
    if (i == 3) specs.back().prompt.resize(20);
    ids.push_back(submit(*engine, specs.back()));
  }
  while (engine->request(ids[3]).n_answer() < 4) ASSERT_TRUE(engine->step());
  engine->cancel(ids[3]);
  while (engine->request(ids[1]).finish == Finish::kNone) ASSERT_TRUE(engine->step());
  RequestSpec next = ask("", 12, spec_.method);  // cuts what others share
  next.prompt.assign(spec_.prompt.begin(), spec_.prompt.begin() + 10);
  next.prompt.push_back(90);
  const auto expected = alone(next);
  next.continues = ids[1];
  const RequestId second = submit(*engine, next);
  finish(*engine);

  EXPECT_EQ(answer(*engine, first), alone(spec_));
  EXPECT_EQ(answer(*engine, second), expected);
  for (const size_t i : {0, 2, 3, 4}) {
    auto expected = alone(specs[i]);
    if (i == 3) expected.resize(answer(*engine, ids[i]).size());
    EXPECT_EQ(answer(*engine, ids[i]), expected) << "request " << i;
    const auto shared = static_cast<int64_t>(specs[i].prompt.size()) - 1;
    const int64_t computed_again = setup_.head != nullptr;  // of a head's input
    EXPECT_GE(engine->request(ids[i]).stats.reused_tokens, shared - computed_again) << "request " << i;
  }
  for (const RequestId id : {first, ids[0], second, ids[2], ids[3], ids[4]}) engine->release(id);
  EXPECT_EQ(engine->held_cells(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Ways, Fork, ::testing::ValuesIn(ways()), [](const auto& way) { return way.param.name; });

// An engine, and how many rows of prompts its target has been given.
struct Counted {
  explicit Counted(const PipelineSpec& setup)
      : engine(make_engine(six_layers(), setup, [this](std::unique_ptr<Executor> executor) {
          auto spy = std::make_unique<Spy>(std::move(executor));
          spy->on_submit = [this](ModelId model, const Batch& batch) {
            for (const Row& row : batch.rows) prompt_rows += model == kTarget && row.kind == Row::Kind::kPrompt;
          };
          return spy;
        })) {}
  size_t prompt_rows = 0;
  std::unique_ptr<Engine> engine;
};

TEST(Forks, APromptIsComputedOnceForAllOfItsAnswers) {
  Counted counted({.stages = 3, .scheduler = {.row_budget = 64, .prompt_chunk = 8}});
  const RequestSpec spec = ask(kPrompt);
  const RequestId first = submit(*counted.engine, spec);
  std::vector<RequestId> ids;
  for (uint32_t i = 1; i < 4; ++i) ids.push_back(submit(*counted.engine, another(spec, i, first)));
  RequestSpec unlike = ask("quite another text that is long enough", 10);
  unlike.shares = first;
  const RequestId stranger = submit(*counted.engine, unlike);
  EXPECT_EQ(counted.engine->waiting(), 3u) << "who has nothing in common waits for nobody";
  finish(*counted.engine);
  EXPECT_EQ(counted.prompt_rows, spec.prompt.size() - 1 + unlike.prompt.size() - 1);
  EXPECT_EQ(answer(*counted.engine, stranger), alone(unlike));
  for (const RequestId id : ids) EXPECT_EQ(answer(*counted.engine, id), answer(*counted.engine, first));
}

TEST(Forks, WhatAnotherIsSayingCanBeGoneOnFrom) {
  const auto engine = make_engine(six_layers(), {.stages = 3});
  const RequestSpec spec = ask(kPrompt, 60);
  const RequestId first = submit(*engine, spec);
  while (engine->request(first).n_answer() < 20) ASSERT_TRUE(engine->step());
  RequestSpec branch = ask("", 30);
  branch.prompt = engine->request(first).tokens;
  branch.prompt.insert(branch.prompt.end(), {90, 91, 92});
  const auto expected = alone(branch);
  branch.shares = first;
  const RequestId second = submit(*engine, branch);
  EXPECT_EQ(engine->request(second).stats.reused_tokens,
            static_cast<int64_t>(engine->request(first).speculation.target.committed().size()));
  finish(*engine);
  EXPECT_EQ(answer(*engine, first), alone(spec));
  EXPECT_EQ(answer(*engine, second), expected);
}

TEST(Forks, WhoComesTooLateComputesAllItself) {
  const auto engine = make_engine(six_layers(), {.stages = 3});
  const RequestSpec spec = ask(kPrompt, 5);
  const RequestId first = submit(*engine, spec);
  finish(*engine);
  const RequestId second = submit(*engine, another(spec, 1, first));
  EXPECT_EQ(engine->request(second).stats.reused_tokens, static_cast<int64_t>(spec.prompt.size()) - 1)
      << "finished, not released";
  finish(*engine);
  engine->release(first);
  engine->release(second);
  const RequestId third = submit(*engine, another(spec, 2, first));
  finish(*engine);
  EXPECT_EQ(engine->request(third).stats.reused_tokens, 0);
  EXPECT_EQ(answer(*engine, third), alone(spec));
}

TEST(Forks, WhatTheyShareTakesItsCellsOnce) {
  constexpr int32_t kAnswer = 10, kAnswers = 4;
  const RequestSpec spec = ask(kPrompt, kAnswer);
  const auto n_prompt = static_cast<int32_t>(spec.prompt.size());
  const auto engine =
      make_engine(six_layers(), {.stages = 3, .context = 64, .n_cells = n_prompt - 1 + kAnswers * (kAnswer + 1)});
  std::vector<RequestId> ids = {submit(*engine, spec)};
  for (uint32_t i = 1; i < kAnswers; ++i) ids.push_back(submit(*engine, another(spec, i, ids[0])));
  const RequestId more = submit(*engine, another(spec, 9, ids[0]));
  while (engine->waiting() > 1) ASSERT_TRUE(engine->step());
  EXPECT_EQ(engine->request(ids[0]).finish, Finish::kNone) << "all answers are on their way at once";
  finish(*engine);
  EXPECT_EQ(answer(*engine, more), plain_decoding(six_layers(), spec, KvType::kF16, 64));
  engine->release(more);
  for (const RequestId id : ids) engine->release(id);
  EXPECT_EQ(engine->held_cells(), 0u);
}

TEST(Forks, WhoWaitsForAPromptThatIsCancelledGoesOn) {
  const auto engine = make_engine(six_layers(), {.stages = 3, .scheduler = {.row_budget = 8, .prompt_chunk = 4}});
  const RequestSpec spec = ask(kPrompt);
  const RequestId first = submit(*engine, spec), second = submit(*engine, another(spec, 1, first));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(engine->step());
  engine->cancel(first);
  finish(*engine);
  EXPECT_EQ(answer(*engine, second), alone(spec));
  EXPECT_GT(engine->request(second).stats.reused_tokens, 0);
}

TEST(Forks, ARequestGoesOnFromOneOther) {
  const auto engine = make_engine(six_layers(), {.stages = 1});
  const RequestSpec spec = ask("abc", 2);
  const RequestId first = submit(*engine, spec);
  finish(*engine);
  RequestSpec both = another(spec, 1, first);
  both.continues = first;
  const auto refused = engine->submit(both);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("not both"), std::string::npos);
}

}  // namespace
}  // namespace sluice

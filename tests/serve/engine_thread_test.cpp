// What the engine's thread makes of jobs that another engine had begun.
#include "serve/engine_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "serve/served.h"

namespace sluice::test {
namespace {

constexpr int32_t kLength = 40;

Job asking(const std::vector<Token>& said, bool taken_in) {
  Job job{.spec = served_session().spec({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}, "ar"),
          .method = "ar"};
  job.spec.max_tokens = kLength;
  job.spec.ignore_end = true;
  job.answers = {{.said = said}};
  job.taken_in = taken_in;
  return job;
}

struct Told {
  std::vector<Token> said;
  AnswerEnd end;
};
Told answer(EngineThread& engine, Job job) {
  auto whole = std::make_shared<std::promise<Told>>();
  auto told = whole->get_future();
  engine.submit(std::move(job), [whole, all = std::make_shared<Told>()](const AnswerNews& news) {
    all->said.insert(all->said.end(), news.said.begin(), news.said.end());
    if (!news.end) return;
    all->end = *news.end;
    whole->set_value(*all);
  });
  return told.get();
}

EngineThread engine_with_queue(size_t most_waiting) {
  return {served_session(), served_session().make_engine(2).value(), most_waiting, {.broken = [](const Error&) {}}};
}

TEST(EngineThread, WhatAnotherEngineHadTakenInHasItsPlace) {
  EngineThread engine = engine_with_queue(0);
  EXPECT_EQ(answer(engine, asking({}, /*taken_in=*/false)).end.error.status, 429);
  EXPECT_EQ(answer(engine, asking({}, /*taken_in=*/true)).end.finish, Finish::kLength);
}

TEST(EngineThread, ASlotTellsNothingThatMayBeLong) {
  EngineThread engine = engine_with_queue(1);
  Job job = asking({}, /*taken_in=*/false);
  job.spec.sampling.logit_bias.assign(1000, {Token(5), 0.5f});
  job.spec.sampling.grammar.rules = "root ::= [a-z]*" + std::string(100'000, ' ');
  std::promise<void> begun;
  const auto id = engine.submit(std::move(job), [&, first = true](const AnswerNews&) mutable {
    if (std::exchange(first, false)) begun.set_value();
  });
  begun.get_future().wait();
  std::promise<EngineReport> seen;
  engine.look([&](const EngineReport& report) { seen.set_value(report); });
  const EngineReport report = seen.get_future().get();
  ASSERT_EQ(report.slots.size(), 1u);
  EXPECT_TRUE(report.slots[0].sampling.grammar.empty());
  EXPECT_TRUE(report.slots[0].sampling.logit_bias.empty());
  engine.cancel(id);
}

TEST(EngineThread, OfThePromptNoMoreIsReusedThanThereIs) {
  EngineThread engine = engine_with_queue(1);
  const std::vector<Token> whole = answer(engine, asking({}, false)).said;
  ASSERT_EQ(whole.size(), static_cast<size_t>(kLength));
  const std::vector<Token> half(whole.begin(), whole.begin() + kLength / 2);
  const Told rest = answer(engine, asking(half, true));  // shares what it had said with the first
  EXPECT_EQ(rest.said, std::vector<Token>(whole.begin() + kLength / 2, whole.end()));
  EXPECT_EQ(rest.end.usage.prompt_tokens, 20);
  EXPECT_EQ(rest.end.usage.reused_tokens, 20);
}

}  // namespace
}  // namespace sluice::test

// What a server's process and its engine's say to each other comes as it went; what is no message is refused.
#include "serve/engine_wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "serve/frame_channel.h"

namespace sluice {
namespace {

using Bytes = std::vector<std::byte>;

ToEngine a_job() {
  Job job{.choices = 3, .method = "auto", .stops = {"\n\n", "END"}, .shown = {7}, .form_param = "response_format"};
  job.spec.prompt = {1, 2, 3};
  job.spec.sampling = {.temperature = 0.5f,
                       .answer_from = 3,
                       .seed = 1ull << 60,
                       .logit_bias = {{5, -1.0f}},
                       .rule = Rule::kReject,
                       .grammar = {.rules = "root ::= \"a\"", .begin = "x"}};
  job.spec.sources = {SourceKind::kNgram, SourceKind::kHead};
  job.spec.method_options.fallback = Fallback::kNgram;
  job.spec.method_options.branching = {4, 2};
  job.spec.shares = RequestId(9);
  job.spec.logprobs = true;
  job.answers = {{.said = {4, 5}}, {.said = {}, .ended = true}, {}};
  return JobGiven{.id = 1ull << 40, .job = std::move(job)};
}

FromEngine some_news() {
  AnswerNews news{.choice = 1, .text = "h\xc3\xa4", .end = {}, .tokens = {4}, .logprobs = {{-0.5f, {{4, -0.5f}}}}};
  news.end = AnswerEnd{.finish = Finish::kLength,
                       .usage = {.prompt_tokens = 3, .method = "surge", .tokens_per_second = 12.5},
                       .error = {.status = 400, .message = "m", .param = "p", .code = "c"},
                       .stop = "END"};
  news.arrived = {.tokens = 1, .batches = 2, .request = 3};
  news.said = {4, 2};
  return JobTold{.id = 5, .news = std::move(news)};
}

FromEngine a_report() {
  EngineReport report{.now = 1.5, .running = 2, .trouble = "t"};
  report.slots = {{.request = RequestId(4), .method = "specpipe", .source = "ngram", .prompt_tokens = 6}};
  report.ended[2] = 11;
  report.first_token.saw(0.03, 4);
  report.stage_busy = {0.25, 0.5};
  report.resident_bytes = 1ull << 33;
  report.restarts = 2;
  Steps steps;
  steps.entered = {{.batch = BatchId(1), .model = kTarget, .time = 0.1, .prompt_rows = 2, .node_rows = 3}};
  steps.resolved = {{.batch = BatchId(1), .fate = Fate::kFlushed, .rows = 2, .time = 0.2}};
  steps.came = {{.time = 0.3, .request = 1, .tokens = 2, .hit = false}};
  return LookTold{.report = std::move(report), .watch = true, .steps = std::move(steps)};
}

TEST(EngineWire, MessagesComeAsTheyWent) {
  for (const ToEngine& message :
       {a_job(), ToEngine(JobCancelled{7}), ToEngine(LookAsked{true}), ToEngine(WatchEnded{})}) {
    const Bytes bytes = bytes_of(message);
    const auto back = to_engine(bytes);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(bytes_of(*back), bytes);
  }
  const auto job = std::get<JobGiven>(*to_engine(bytes_of(a_job()))).job;
  EXPECT_EQ(job.spec.sampling.grammar.rules, "root ::= \"a\"");
  EXPECT_EQ(job.spec.shares, RequestId(9));
  EXPECT_FALSE(job.spec.continues);
  EXPECT_EQ(job.answers[0].said, (std::vector<Token>{4, 5}));
  for (const FromEngine& message :
       {some_news(), a_report(), FromEngine(EngineOpened{.about = {.model = "m", .cuts = {{0, 3}}}, .methods = {"ar"}}),
        FromEngine(EngineFailed{{ErrorKind::kRuntime, "why"}}),
        FromEngine(LoadChanged{{.running = 1, .waiting = 2, .trouble = ""}})}) {
    const Bytes bytes = bytes_of(message);
    const auto back = from_engine(bytes);
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(back->index(), message.index());
    EXPECT_EQ(bytes_of(*back), bytes);
  }
  const auto news = std::get<JobTold>(*from_engine(bytes_of(some_news()))).news;
  EXPECT_EQ(news.text, "h\xc3\xa4");
  EXPECT_EQ(news.end->usage.method, "surge");
  EXPECT_EQ(std::get<LookTold>(*from_engine(bytes_of(a_report()))).report.first_token.counts[4], 4u);
}

TEST(EngineWire, BytesThatAreNoMessageAreRefused) {
  for (const Bytes& whole : {bytes_of(a_job()), bytes_of(some_news()), bytes_of(a_report())}) {
    for (size_t n = 0; n < whole.size(); ++n) {
      const std::span<const std::byte> part = std::span(whole).first(n);
      EXPECT_FALSE(to_engine(part) && from_engine(part)) << n;
    }
    for (size_t i = 0; i < whole.size(); ++i)
      for (const int x : {0xff, 0x80, 0x01}) {  // no crash, whatever it is taken for
        Bytes other = whole;
        other[i] ^= static_cast<std::byte>(x);
        to_engine(other);
        from_engine(other);
      }
  }
}

TEST(FrameChannel, FramesComeWholeAndInOrder) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  FrameChannel there(pair[1]);
  std::vector<Bytes> frames;
  for (size_t i = 0; i < 200; ++i) frames.emplace_back(i % 7 == 0 ? 150'000 : i, static_cast<std::byte>(i));
  {
    FrameChannel here(pair[0]);
    std::thread sender([&] {
      for (const Bytes& frame : frames) here.send(frame);
    });
    for (const Bytes& frame : frames) EXPECT_EQ(there.receive(), frame);
    sender.join();
  }
  EXPECT_EQ(there.receive(), std::nullopt) << "the other side has gone";
  there.send(frames[0]);
}

TEST(FrameChannel, WhatIsGivenBeforeItsEndIsSent) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  FrameChannel there(pair[1]);
  const Bytes last(1'000'000, std::byte{7});
  std::thread other([&, socket = pair[0]] { FrameChannel(socket).send(last); });
  EXPECT_EQ(there.receive(), last);
  other.join();
}

TEST(FrameChannel, WhoWaitsIsToldThatItIsShut) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  FrameChannel here(pair[0]), there(pair[1]);
  std::thread other([&] { here.shut(); });
  EXPECT_EQ(here.receive(), std::nullopt);
  other.join();
}

}  // namespace
}  // namespace sluice

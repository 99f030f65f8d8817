#include "base/helper_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace sluice {
namespace {

constexpr HelperProcess::Limits kLimits = {.cpu_seconds = 0.3, .memory_bytes = 64 << 20, .answer_bytes = 1 << 20};

int deep(volatile int* n) {
  volatile int more = *n + 1;
  return more < 0 ? 0 : deep(&more) + more;
}

// What is asked for happens.
Result<std::string> act(std::string_view question) {
  if (question == "abort") std::abort();
  if (question == "leave") ::_exit(0);
  if (question == "fault") {
    volatile uintptr_t nowhere = 8;
    *reinterpret_cast<volatile int*>(nowhere) = 1;
  }
  if (question == "loop")
    for (volatile bool on = true; on;) {
    }
  if (question == "memory") {
    std::vector<std::string> all;
    for (;;) all.emplace_back(1 << 20, 'x');
  }
  if (question == "depth") {
    volatile int n = 0;
    return std::to_string(deep(&n));
  }
  if (question == "large") return std::string((1 << 20) + 1, 'x');
  if (question == "throw") throw std::runtime_error("thrown");
  if (question == "fail") return runtime_error("failed");
  if (question == "die") ::kill(::getppid(), SIGKILL);
  if (question == "end all") {  // as who ends a service does
    ::kill(::getppid(), SIGTERM);
    ::kill(::getpid(), SIGTERM);
  }
  if (question == "stop") ::kill(::getpid(), SIGKILL);
  return "you said " + std::string(question);
}

std::string error_of(const HelperProcess& helper, const std::string& question) {
  const auto answer = helper.ask(question);
  return answer ? "" : answer.error().message;
}

TEST(HelperProcess, AnswersWithAnyBytes) {
  const auto helper = HelperProcess::start(act, kLimits).value();
  EXPECT_EQ(helper.ask("").value(), "you said ");
  const std::string bytes("\0\xff\n", 3), many(3 << 20, 'x');
  EXPECT_EQ(helper.ask(bytes).value(), "you said " + bytes);
  EXPECT_EQ(error_of(helper, many), "its result has more than 1 MiB");
}

TEST(HelperProcess, WhateverAnAnswerEndsInTheNextOneStartsAfresh) {
  const auto helper = HelperProcess::start(act, kLimits).value();
  for (const auto& [question, error] : {std::pair{"abort", "it crashed (Aborted)"},
                                        {"leave", "it crashed (exit)"},
                                        {"fault", "it crashed (Segmentation fault)"},
                                        {"loop", "it took more than 0.3 s of computing"},
#ifndef __SANITIZE_ADDRESS__  // which ends the program where there is no more memory
                                        {"memory", "it took more than 64 MiB of memory"},
#endif
                                        {"depth", "it nests too deeply"},
                                        {"large", "its result has more than 1 MiB"},
                                        {"throw", "thrown"},
                                        {"fail", "failed"}}) {
    EXPECT_EQ(error_of(helper, question), error);
    EXPECT_EQ(helper.ask("hello").value_or(""), "you said hello");
  }
  EXPECT_EQ(helper.ask("fail").error().kind, ErrorKind::kRuntime);
  EXPECT_EQ(helper.ask("loop").error().kind, ErrorKind::kInput);
}

// As the system does when there is no more memory.
TEST(HelperProcess, WhatWasStoppedFromOutsideIsNotTheQuestionsFault) {
  const auto helper = HelperProcess::start(act, kLimits).value();
  const auto stopped = helper.ask("stop");
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().kind, ErrorKind::kRuntime);
  EXPECT_EQ(stopped.error().message, "its helper process was stopped (Killed)");
  EXPECT_EQ(helper.ask("abort").error().kind, ErrorKind::kInput);
  EXPECT_EQ(helper.ask("hello").value_or(""), "you said hello");
}

// A program that is to end may have answers to finish.
TEST(HelperProcess, EndsWithItsProgramAndNotBefore) {
  const auto helper = HelperProcess::start(act, kLimits).value();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(helper.ask("end all").value_or(""), "you said end all");
}

TEST(HelperProcess, ThatHasEndedIsAnError) {
  const auto helper = HelperProcess::start(act, kLimits).value();
  EXPECT_EQ(error_of(helper, "die"), "its helper process has ended");
  EXPECT_EQ(error_of(helper, "hello"), "its helper process has ended");
  EXPECT_EQ(helper.ask("hello").error().kind, ErrorKind::kRuntime);
}

TEST(HelperProcess, ThreadsMayAskAtOnce) {
  const auto helper = HelperProcess::start(act, kLimits).value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&helper, t] {
      const std::string own(static_cast<size_t>(1000 * (t + 1)), static_cast<char>('a' + t));
      for (int i = 0; i < 25; ++i) EXPECT_EQ(helper.ask(own).value_or(""), "you said " + own);
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace sluice

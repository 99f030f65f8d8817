// A process that runs what may assert, loop or eat memory when its input is hostile.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice {

// It is forked off once, and forks again for each question: whatever an answer ends in, the next one starts afresh.
//
// Thread safety: ask() may be called by several threads at once; they are served one after the other.
class HelperProcess {
 public:
  struct Limits {
    double cpu_seconds;
    size_t memory_bytes;  // more than the process has when it starts
    size_t answer_bytes;
  };
  // Answers a question, in the helper. What it throws is an error.
  using Work = std::function<Result<std::string>(std::string_view question)>;

  // REQUIRES: the process has one thread: a lock that another one holds is held for ever in the helper.
  static Result<HelperProcess> start(Work work, const Limits& limits);
  HelperProcess(HelperProcess&&) noexcept;
  HelperProcess& operator=(HelperProcess&&) noexcept;
  ~HelperProcess();

  // Errors are those of `work`, or say what came of it: "it took more than 3 s of computing", "it took more than 512
  // MiB of memory", "its result has more than 16 MiB", "it nests too deeply", "it crashed (Aborted)". These are kInput;
  // kRuntime is what the question has no part in: there is no helper any more, or no process for an answer, which may
  // have been stopped from outside.
  Result<std::string> ask(std::string_view question) const;

 private:
  struct State;
  explicit HelperProcess(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sluice

// A random pipeline on a simulated clock, what is asked of it and what is done to it, and what each request must
// answer.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/cell_watch.h"
#include "support/harness.h"

namespace sluice::test {

// Up to three requests at a time, of which some are cancelled, continued or go on by another method.
class Story {
 public:
  // faults: messages are held up and come twice, workers pause; in one story of four a worker crashes, and in half of
  // the others stages of the target are lost and replaced. target: of six layers, with the words of six_layers().
  explicit Story(uint64_t seed, bool faults = false, const Opened& target = six_layers());
  ~Story() { log.clear(); }

  void run();

  int64_t hits = 0, flushes = 0, shared = 0;
  int64_t losses = 0, replays = 0;  // stages that were replaced, and requests that went on after that
  bool crashed = false;
  int64_t reads() const { return watch_.reads(); }
  static inline std::string log;  // of the story that is being told; outlives it if an invariant breaks

 private:
  void note(const std::string& line) { log += line + '\n'; }
  void tell(RequestId id, const std::string& what);
  int32_t running() const;
  bool has_failed() const;
  void begin();
  void share(RequestSpec& spec);
  void interrupt();
  void switch_method();
  void judge(RequestId id, const RequestSpec& spec);
  void judge_all();
  void judge_failure(const Error& error);

  Dice dice_;
  const Opened& opened_;
  CellWatch watch_;
  PipelineSpec setup_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, RequestSpec> asked_;
  std::map<RequestId, std::vector<Token>> streamed_;
};

// Before the tests of a program that tells stories: a broken invariant ends it, but not before it has said in which.
void tell_story_when_aborted();

}  // namespace sluice::test

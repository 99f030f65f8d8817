// What a server's process and its engine's say to each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "engine/trace.h"
#include "serve/answer_engine.h"

namespace sluice {

struct JobGiven {
  AnswerEngine::JobId id = 0;
  Job job;
};
struct JobCancelled {
  AnswerEngine::JobId id = 0;
};
struct LookAsked {
  bool watch = false;  // with steps
};
struct WatchEnded {
  bool over = true;
};
using ToEngine = std::variant<JobGiven, JobCancelled, LookAsked, WatchEnded>;

// The first thing that an engine says, if not EngineFailed.
struct EngineOpened {
  TraceHeader about;
  std::vector<std::string> methods;  // that requests may name
};
// The last thing.
struct EngineFailed {
  Error error;
};
struct LoadChanged {
  AnswerEngine::Load load;
};
struct JobTold {
  AnswerEngine::JobId id = 0;
  AnswerNews news;
};
// The answers to LookAsked come in its order.
struct LookTold {
  EngineReport report;
  bool watch = false;
  Steps steps;
};
using FromEngine = std::variant<EngineOpened, EngineFailed, LoadChanged, JobTold, LookTold>;

std::vector<std::byte> bytes_of(const ToEngine& message);
std::vector<std::byte> bytes_of(const FromEngine& message);
// The message that these bytes are. Errors (kInput) say what is wrong with them.
Result<ToEngine> to_engine(std::span<const std::byte> bytes);
Result<FromEngine> from_engine(std::span<const std::byte> bytes);

}  // namespace sluice

// Runs one request to its end, streaming; with method `auto`, by whichever of two methods is faster.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "session/auto_trial.h"
#include "session/session.h"

namespace sluice {

struct Answer {
  RequestId request;
  std::string text;
  std::optional<AutoTrial> trial;  // with method `auto`, or a named one if it is compared with plain decoding
  // What the turn of plain decoding brought, if a method was named.
  int64_t plain_tokens = 0, plain_verifications = 0;
  bool interrupted = false;
};

struct AnswerHooks {
  std::function<bool(const std::string& text)> emit;  // gets the text piece by piece and says whether to go on
  std::function<bool()> interrupted;                  // asked after each step whether to end the answer as it is
};

// Generates the answer to a prompt. The request stays in the engine, finished, for `continues` and figures.
Result<Answer> answer(const Session& session, Engine& engine, RequestSpec spec, const AnswerHooks& hooks);

// The answer of a request that has ended.
Answer finished_answer(const Session& session, const Engine& engine, RequestId request);

}  // namespace sluice

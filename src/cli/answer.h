// Runs one request to its end, streaming; and says what it did.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "cli/session.h"
#include "engine/auto_trial.h"

namespace sluice {

struct Answer {
  RequestId request;
  std::string text;
  std::optional<AutoTrial> trial;  // with method `auto`, or a named one if it is compared with plain decoding
  // What the turn of plain decoding brought, if a method was named.
  int64_t plain_tokens = 0, plain_verifications = 0;
  bool interrupted = false;
};

// Whether plain decoding gets turns on an answer: with method `auto`; and with a method that was named, to say so if it
// is far slower, unless another text would come of it (--verify, --lossy), a trace would show it, the clock is
// simulated, so that figures are those of the method alone, or the answer is too short.
std::optional<AutoTrial::Purpose> trial_for(const CommonOptions& options);

// Generates the answer to a prompt; `emit` gets the text piece by piece and says whether to go on. The request stays in
// the engine, finished, for `continues` and figures.
Result<Answer> answer(const Session& session, Engine& engine, RequestSpec spec, std::optional<AutoTrial::Purpose> trial,
                      const std::function<bool(const std::string&)>& emit);

// The answer of a request that has ended.
Answer finished_answer(const Session& session, const Engine& engine, RequestId request);

// The JSON object of `sluice run --json`.
nlohmann::json to_json(const Session& session, const Engine& engine, const CommonOptions& options,
                       const Answer& answer);

// The same for people: a line or two.
std::string summary(const Session& session, const Engine& engine, const CommonOptions& options, const Answer& answer);

// Writes the trace that --trace asked for.
Status write_trace(const Session& session, const Engine& engine, const CommonOptions& options, const Answer& answer);

}  // namespace sluice

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
  std::optional<AutoTrial> trial;  // with method `auto`
  bool interrupted = false;
};

// Generates the answer to a prompt; `emit` gets the text piece by piece and says whether to go on. The request stays in
// the engine, finished, for `continues` and figures.
Result<Answer> answer(const Session& session, Engine& engine, RequestSpec spec, bool try_methods,
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

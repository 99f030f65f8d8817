// What is said of an answer, to programs and to people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "session/answer.h"

namespace sluice {

// The JSON object of `sluice run --json`.
nlohmann::json to_json(const Session& session, const Engine& engine, const Answer& answer);

// The same for people: a line or two.
std::string summary(const Session& session, const Engine& engine, const Answer& answer);

// Writes the trace that --trace asked for; nothing if the path is empty.
Status write_trace(const Session& session, const Engine& engine, const Answer& answer, const std::string& path);

}  // namespace sluice

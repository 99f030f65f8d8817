// What is said of an answer, to programs and to people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "session/answer.h"

namespace sluice {

// The JSON object of `sluice run --json`.
nlohmann::json to_json(const Session& session, const Engine& engine, const Answer& answer);

// The same for people: how fast, how much faster than plain decoding if that was measured, how good the guesses were;
// in a second line, if speculation did not pay, what it and plain decoding made.
std::string summary(const Session& session, const Engine& engine, const Answer& answer);
// More of it: where and how it ran, and what its guesses met.
std::string details(const Session& session, const Engine& engine, const Answer& answer);

// Writes the trace that --trace asked for; nothing if the path is empty.
Status write_trace(const Session& session, const Engine& engine, const Answer& answer, const std::string& path);

}  // namespace sluice

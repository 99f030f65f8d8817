// What is said of an answer, to programs and to people.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "session/answer.h"

namespace sluice {

// What stands with a result where states were rounded on their way from stage to stage.
inline constexpr const char* kInexact = "inexact: activations f16";

// The JSON object of `sluice run --json`.
nlohmann::json to_json(const Session& session, const Engine& engine, const Answer& answer);

// The same for people: how fast, how much faster than plain decoding if that was measured, how good the guesses were;
// in further lines, if speculation did not pay, what it and plain decoding made, and if a device's bits moved in spite
// of a lock, that.
std::string summary(const Session& session, const Engine& engine, const Answer& answer);
// More of it: where and how it ran, and what its guesses met.
std::string details(const Session& session, const Engine& engine, const Answer& answer);

// Why the answer ends in the middle, in a line; empty: it doesn't, or its length was given (`length_given`).
std::string cut_off(const Engine& engine, const Answer& answer, bool length_given);

// The profile's links, if messages take their time by them, in words; empty: none are emulated.
std::string emulated_links(const Session& session);

// Where stages keep a pace: the largest share of it that one computed, and what was not stored of what should have
// been. Figures count only while the first is below kMostComputing and no more than kMostMissed of the answers had to
// be computed.
inline constexpr double kMostComputing = 0.6, kMostMissed = 0.01;
struct PaceKept {
  std::optional<double> computing;  // none: there is no pace
  uint64_t asked = 0, missed = 0;   // 0: nothing is stored
  std::string text() const;         // a line for each
  Status check() const;             // the error says that and why figures do not count
};
// By one run of `sluice run --json`.
PaceKept pace_of(const nlohmann::json& run);

// What is said of so many states that f16 could not hold.
std::string out_of_range_text(uint64_t n);

// What it cost that edges go by way of this process.
std::string relay_text(size_t edges, double bytes_per_token, double seconds_per_step);

// Writes the trace that --trace asked for; nothing if the path is empty.
Status write_trace(const Session& session, const Engine& engine, const Answer& answer, const std::string& path);

}  // namespace sluice

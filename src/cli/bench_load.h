// Conversations of `sluice bench` on one engine, each beginning when its time has come or there is a place for it.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "base/energy.h"
#include "cli/bench.h"
#include "session/session.h"

namespace sluice {

// What a point asks for after these messages.
Result<RequestSpec> bench_spec(const Session& session, const BenchPoint& point,
                               const std::vector<ChatMessage>& messages);

// When each of `n` conversations comes, in seconds: independent of one another, `rate` a second.
std::vector<double> arrival_times(size_t n, double rate, uint64_t seed);

// Holds the points' conversations; `places` of those without a time are in flight at once, and the next begins when one
// ends. Gives each one's turns (the runs of --json) in the order of the points; all or part of them are missing after
// an interrupt. `energy` may be null.
Result<std::vector<std::vector<nlohmann::json>>> hold_conversations(const BenchOptions& options, const Session& session,
                                                                    Engine& engine, std::span<const BenchPoint> points,
                                                                    int32_t places, EnergyCounter* energy);

// The turns of a prompt that are asked.
size_t turns_asked(const BenchOptions& options, const BenchPrompt& prompt);

}  // namespace sluice

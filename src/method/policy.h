// Numbers of the methods that somebody chose, where neither a paper nor the user gives them (the user's are
// MethodOptions). Other ones make guesses rarer or dearer, but no token another one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "theory/fan_out.h"

namespace sluice::policy {

// The log of a path's probability below which it is not worth a row, even if a row costs nothing: one of 8,000 such
// guesses comes true.
inline constexpr double kUnlikely = -9.0;
// Nodes that surge asks a draft model for at a time, of which those that pay are taken.
inline constexpr int32_t kMostDraftRows = 32;
// What specinfer prepares for the next tree ends where it has become so many nodes: every leaf is the root of another
// one.
inline constexpr size_t kPreparedNodes = 1024;
// Tokens that were foretold prolong a chain as long as its path is likelier than this (a log): they cost no draft pass.
inline constexpr double kLeastFree = -2.5;

// pipespec: no model runs further ahead of the target than so many tokens; and a path less likely than this is
// doubtful, so that somebody had better look at it (kWaitForDoubt).
inline constexpr size_t kFurthestAhead = 64;
inline constexpr double kDoubt = 0.9;

// ssd: requests for which a miss waits for the draft model; among more, most batches would wait for somebody's.
inline constexpr size_t kFewRequests = 4;
// What it believes of acceptance before it has seen any: so many tokens, of which these were accepted.
inline constexpr int64_t kTokensBefore = 10, kAcceptedBefore = 8;
// A fan-out's misses count when it was tried so often; before, they follow this law.
inline constexpr int64_t kTellingTries = 10;
inline constexpr PowerLaw kMissesBefore = {.scale = 0.5, .exponent = 1.0};

}  // namespace sluice::policy

// What pages that watch the engine are told: events of a stream, ready to be sent. Seconds are those of the engine's
// clock. None of them says what was asked or answered.
#pragma once

#include <string>

#include "engine/step_log.h"
#include "engine/trace.h"
#include "serve/tally.h"

namespace sluice {

// `hello`, the first: which stages there are.
std::string hello_event(const TraceHeader& header, const std::string& model, const std::string& method);
// `steps`: what the engine has done, until `now`.
//   batches [[batch, model, entered, prompt rows, rows of nodes], …]
//   spans   [[lane, batch, begin, end, rows computed], …]; lanes are the target's stages, then those of draft models
//   fates   [[batch, fate, rows, when], …]; fates as in Fate
//   tokens  [[when, request, how many, whether without a flush], …]
//   lost    entries for which there was no room
std::string steps_event(const Steps& steps, double now);
// `figures`: counts since the server began, and what it is at. memory: resident bytes.
std::string figures_event(const EngineReport& report, size_t memory);
// `lost`: the page was too slow for so many events.
std::string lost_event(uint64_t events);

}  // namespace sluice

// Measures stages on other hosts, and the links between them, by requests like any others.
#pragma once

#include <functional>
#include <span>

#include "base/profile.h"
#include "engine/trace.h"
#include "session/session.h"

namespace sluice {

// Opens the session's pipeline and has it answer prompts of several lengths plainly; of a profile it gives `layer`,
// `head`, `speeds`, `edges` and `direct`. Goes on as long as `goes_on` (asked after each prompt with the share that is
// done) says so. REQUIRES: the session traces. Errors are those of its engine.
Result<Profile> measure_hosts(const Session& session, const std::function<bool(double)>& goes_on);

// The same of what has happened. Clocks of hosts are not compared: a stage's report counts by its duration and by when
// it came, and what a batch took beside stages is what links took. The way to a stage, from the one before, and the way
// back from it to the coordinator can't be told apart; each counts for half of both.
// REQUIRES: one request after the other was decoded plainly.
Profile profile_of(const Trace& trace, std::span<const LayerRange> cuts, int32_t d_model);

}  // namespace sluice

// What a plan chooses among: on which hosts, or devices, the stages and the draft model run, and what that costs.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/layer_range.h"
#include "base/profile.h"
#include "session/options.h"

namespace sluice {

struct Place {
  std::vector<HostOptions> hosts;  // of the stages; empty: the profile's devices
  Profile profile;                 // says of draft models too what they cost there
  std::vector<LayerRange> cuts;
  DraftPlace draft;
};

// Without the host of the slowest device; the cuts are to be made anew. REQUIRES: two hosts at least, with measured
// edges, direct ways and speeds.
Place without_weakest(Place place);

DraftPlace with_stage(int32_t stage);
// The same with draft models here, or with a stage, at the curves that the profile has for a device of speed 1.
Place priced_at(Place place, const DraftPlace& draft);

// Where the draft model's host holds a stage too, they share it. REQUIRES: the profile says what passes take there.
void share_its_host(Place& place);

// Stages whose device would be through soonest with a row of their own and a pass of the largest draft model that takes
// so long on a device of speed 1; two at most, since each is worth a forecast. d_model: as wide as the model.
std::vector<size_t> least_slowed(const Place& place, const std::vector<CostCurve>& drafts, int32_t d_model);

// Of all hosts that are not among these the fastest, if there is one.
std::optional<size_t> fastest_but(const Place& all, std::span<const HostOptions> these);

}  // namespace sluice

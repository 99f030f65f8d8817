// What a request did, in figures.
#pragma once

#include <span>
#include <vector>

#include "engine/request.h"
#include "pipeline/cost_model.h"

namespace sluice {

// Derived from counts and times (`sluice run --json`).
struct RequestFigures {
  double prefill_seconds = 0, decode_seconds = 0;
  double tokens_per_second = 0;             // tokens after the first over decode_seconds
  double steps = 0;                         // K: decode time over the time of the slowest stage at width 1
  double equivalent_acceptance_length = 0;  // SPD eq. (4): n N / K
  std::vector<double> stage_utilisation;    // busy share while decoding
  std::vector<double> stage_computing;      // of that, where stages keep a pace, the share that they computed
  size_t relayed_edges = 0;                 // that go by way of the coordinator's process; 0: none does
  double relayed_bytes_per_token = 0;       // while decoding, of all edges
  double relayed_seconds_per_step = 0;      // that it takes longer, of all edges: Relayed::seconds_per_step()
};

// now: the target's stages, of a request that has not ended. cost: of a simulated or paced clock, else null.
RequestFigures figures_of(const Request& request, std::span<const StageClock> now, const CostModel* cost);

}  // namespace sluice

#include "pipeline/link_clock.h"

#include <algorithm>

namespace sluice {

double LinkClock::send(double now, double bytes, double stretch, double held) {
  double seconds = link_.seconds(bytes);
  if (link_.jitter > 0.0) seconds += link_.latency * link_.jitter * (2.0 * uniform(jitter_, n_frames_++) - 1.0);
  const double begin = std::max(now, free_);
  free_ = begin + stretch * link_.occupied(bytes);
  last_arrival_ = std::max(last_arrival_, begin + stretch * seconds + held);
  return last_arrival_;
}

PipelineLinks::PipelineLinks(size_t n_stages)
    : edges(n_stages + 1), to_stages(n_stages), reports(n_stages), taps(n_stages) {}

PipelineLinks::PipelineLinks(const CostModel& cost, ModelId model, size_t n_stages) {
  enum : uint64_t { kEdge, kToStage, kReport, kTaps };
  const auto clock = [&](const Link& link, uint64_t kind, size_t number) {
    return LinkClock(link, {.seed = cost.profile().seed,
                            .choice = static_cast<uint32_t>(model.value),
                            .position = static_cast<uint32_t>(number),
                            .purpose = Purpose::kLink,
                            .path = kind});
  };
  for (size_t i = 0; i <= n_stages; ++i) edges.push_back(clock(cost.edge(i), kEdge, i));
  for (size_t s = 0; s < n_stages; ++s) {
    const StageId stage(static_cast<int32_t>(s));
    to_stages.push_back(clock(cost.to_stage(stage), kToStage, s));
    reports.push_back(clock(cost.from_stage(stage), kReport, s));
    taps.push_back(clock(cost.taps_of(stage), kTaps, s));
  }
}

}  // namespace sluice

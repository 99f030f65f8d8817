// When what is sent over the links of a profile arrives: the same for every executor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/random.h"
#include "pipeline/cost_model.h"

namespace sluice {

// One way of a link. Frames arrive in the order in which they were handed over.
class LinkClock {
 public:
  LinkClock() = default;  // a way that costs nothing
  // jitter: where its draws are made; the n-th frame's is the n-th.
  LinkClock(Link link, DrawSite jitter) : link_(link), jitter_(jitter) {}

  bool is_free() const { return link_.latency <= 0.0 && link_.bandwidth <= 0.0; }
  double occupied(double bytes) const { return link_.occupied(bytes); }

  // A frame of so many bytes is handed over `now`: when it has arrived. Seconds on any clock that does not run
  // backwards. For tests it takes `stretch` times as long as the link says, and then `held` more.
  double send(double now, double bytes, double stretch = 1.0, double held = 0.0);

 private:
  Link link_;
  DrawSite jitter_;
  uint32_t n_frames_ = 0;
  double free_ = 0.0;          // from when it can take the next frame
  double last_arrival_ = 0.0;  // of the one before
};

// The links of one model's pipeline. Each belongs to who sends over it.
struct PipelineLinks {
  PipelineLinks() = default;
  explicit PipelineLinks(size_t n_stages);  // that cost nothing
  PipelineLinks(const CostModel& cost, ModelId model, size_t n_stages);

  std::vector<LinkClock> edges;      // [stages + 1]: to stage i from the one before, or the coordinator; outcomes to it
  std::vector<LinkClock> to_stages;  // [stages]: amendments
  std::vector<LinkClock> reports;    // [stages]
  std::vector<LinkClock> taps;       // [stages]: to the heads, beside the coordinator
};

}  // namespace sluice

// The stages of a model that are elsewhere, with a head of it if that is too, as an executor sees them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/result.h"
#include "compute/stage_runner.h"
#include "pipeline/route.h"
#include "wire/batch.h"

namespace sluice {

// What goes by way of the coordinator's process from a stage to the next, which it can't reach.
struct Relayed {
  size_t edges = 0;      // now
  uint64_t batches = 0;  // so far, of every edge
  uint64_t bytes = 0;    // of them
  double seconds = 0;    // of them, beside the way here: that they lay here, and half the round trips from here on
  double seconds_per_step() const {
    return batches > 0 ? seconds / static_cast<double>(batches) * static_cast<double>(edges) : 0.0;
  }
};

// Used by the coordinator's thread. What comes back comes on a thread of their own, in the order in which the stages
// sent it: taps, or that they have come to the head; reports (their times are the stage's own; only durations count);
// outcomes. It has been checked: they are of batches that were submitted, in their order, and hold nothing that is out
// of range.
class RemoteStages {
 public:
  virtual ~RemoteStages() = default;  // when it is done, nothing comes any more

  // What becomes of the stages, on a thread of their own. After any of it nothing comes any more of what was under way.
  // generation: StagesReplaced and StagesLost say what it is (pipeline/executor.h).
  struct Ears {
    std::function<void(const Error&)> failed;                     // for good
    std::function<void(uint32_t generation)> replaced;            // some were lost, others are there
    std::function<void(const Error&, uint32_t generation)> lost;  // nobody is there in their place
  };
  // To be called once, before anything else. links: outlives this; nothing is passed on by it.
  virtual void start(Links& links, Ears ears) = 0;

  // model: theirs, or the head's.
  virtual void submit(ModelId model, const Batch& batch) = 0;
  virtual void amend(ModelId model, const Amendment& amendment) = 0;
  virtual void resume(uint32_t /*generation*/) {}

  virtual Relayed relayed() { return {}; }
  virtual Exactness exactness() const = 0;  // of the weakest of them
};

}  // namespace sluice

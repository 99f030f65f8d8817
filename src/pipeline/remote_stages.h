// The stages of a model that are elsewhere, as an executor sees them.
#pragma once

#include <functional>

#include "base/result.h"
#include "compute/stage_runner.h"
#include "pipeline/route.h"
#include "wire/batch.h"

namespace sluice {

// Used by the coordinator's thread. What comes back comes on a thread of their own, in the order in which the stages
// sent it: taps, reports (their times are the stage's own; only durations count), outcomes. It has been checked: they
// are of batches that were submitted, in their order, and hold nothing that is out of range.
class RemoteStages {
 public:
  virtual ~RemoteStages() = default;  // when it is done, nothing comes any more

  // To be called once, before anything else. links: outlives this; nothing is passed on by it. failed: is called at
  // most once, with what names the host.
  virtual void start(Links& links, std::function<void(const Error&)> failed) = 0;

  virtual void submit(const Batch& batch) = 0;
  virtual void amend(const Amendment& amendment) = 0;

  virtual Exactness exactness() const = 0;  // of the weakest of them
};

}  // namespace sluice

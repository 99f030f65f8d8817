// What the last stage of a model makes of a batch: a judge of the target's, a guesser of a draft model's or a head's.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "pipeline/computation.h"
#include "wire/batch.h"
#include "wire/report.h"

namespace sluice {

class Ending {
 public:
  virtual ~Ending() = default;

  // Batches in FIFO order, with all their rows.
  virtual void enter(const Batch& batch) = 0;

  // Which of a batch's rows may be of use, now that all batches before it are known: [rows].
  virtual std::vector<bool> hopeful(std::span<const Row> rows) const = 0;

  // Adds to `outcome` what comes of a batch, which `computation` has just run. Gives the number of rows whose logits
  // were needed.
  virtual int32_t conclude(const Batch& batch, Computation& computation, Outcome& outcome) = 0;

  // Since it was last asked.
  Lookups take_lookups() { return std::exchange(lookups_, {}); }

 protected:
  Lookups lookups_;
};

}  // namespace sluice

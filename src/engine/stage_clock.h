// How busy a stage has been.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/policy.h"

namespace sluice {

struct StageClock {
  double busy = 0;      // seconds
  int64_t batches = 0;  // of which rows were computed
  double lately = 0;    // seconds that it took for one, a running average

  void worked(double seconds, bool on_rows) {
    busy += seconds;
    if (!on_rows) return;
    lately += std::max(policy::kNewestPass, 1.0 / static_cast<double>(++batches)) * (seconds - lately);
  }
};

}  // namespace sluice

// How busy a stage has been.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/policy.h"
#include "wire/report.h"

namespace sluice {

struct StageClock {
  double busy = 0;            // seconds
  int64_t batches = 0;        // of which rows were computed
  double lately = 0;          // seconds that it took for one, a running average
  double computed = 0;        // of `busy`, if it keeps a pace
  Lookups lookups;            // where results are kept by path
  uint64_t out_of_range = 0;  // numbers of states that f16 can't hold, where they are rounded to it

  void worked(const StageReport& report) {
    const double seconds = report.end - report.begin;
    busy += seconds;
    computed += report.computed;
    lookups.asked += report.lookups.asked;
    lookups.missed += report.lookups.missed;
    out_of_range += report.out_of_range;
    if (report.rows_computed == 0) return;
    lately += std::max(policy::kNewestPass, 1.0 / static_cast<double>(++batches)) * (seconds - lately);
  }
};

}  // namespace sluice

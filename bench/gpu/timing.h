// Medians of repeated runs.
#pragma once

#include <algorithm>
#include <vector>

#include "device.h"

namespace gpu {

struct Timing {
  double median = 0, least = 0;  // seconds
  int runs = 0;
};

// After three runs to warm up, as many as `seconds` allow, from 7 to 200.
template <class Run>
Timing time_of(double seconds, Run&& run) {
  double warm = 0;
  for (int i = 0; i < 3; ++i) {
    const double start = now();
    run();
    warm = now() - start;
    if (warm > seconds) break;
  }
  const int n = std::clamp(static_cast<int>(seconds / std::max(warm, 1e-7)), warm > 1 ? 1 : 7, 200);
  std::vector<double> took(static_cast<size_t>(n));
  for (double& t : took) {
    const double start = now();
    run();
    t = now() - start;
  }
  std::sort(took.begin(), took.end());
  return {took[took.size() / 2], took[0], n};
}

}  // namespace gpu

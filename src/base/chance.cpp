#include "base/chance.h"

#include <numeric>

#include "base/result.h"

namespace sluice {

size_t choose_by_noise(const DrawSite& site, uint32_t index, std::span<const double> weights) {
  double left = uniform(site, index) * std::accumulate(weights.begin(), weights.end(), 0.0);
  size_t chosen = weights.size();  // what rounding leaves over goes to the last that can be chosen
  for (size_t i = 0; i < weights.size() && left >= 0.0; ++i) {
    if (!(weights[i] > 0.0)) continue;
    chosen = i;
    left -= weights[i];
  }
  SLUICE_CHECK(chosen < weights.size(), "there is something to choose");
  return chosen;
}

}  // namespace sluice

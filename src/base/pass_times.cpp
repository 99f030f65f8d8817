#include "base/pass_times.h"

#include <cmath>
#include <iterator>

namespace sluice {

void PassTimes::saw(int32_t rows, double seconds) {
  if (rows == 0) return;
  constexpr double kNew = 0.2;  // the share of the newest
  const auto [at, first] = seen_.try_emplace(rows, seconds);
  if (!first) at->second += kNew * (seconds - at->second);
}

double PassTimes::seconds(int32_t rows) const {
  if (seen_.empty()) return 0.0;
  const auto above = seen_.lower_bound(rows);
  if (above == seen_.end()) return seen_.rbegin()->second;
  if (above == seen_.begin() || above->first == rows) return above->second;
  const auto below = std::prev(above);
  const double share = static_cast<double>(rows - below->first) / (above->first - below->first);
  return std::lerp(below->second, above->second, share);
}

size_t PassTimes::best_width(std::span<const double> gains, double seconds_per_gain) const {
  size_t best = 0;
  double sum = 0.0, best_value = 0.0;
  for (size_t i = 0; i < gains.size(); ++i) {
    sum += gains[i];
    const double value = sum * seconds_per_gain - seconds(static_cast<int32_t>(i) + 1);
    if (i == 0 || value > best_value) best = i + 1, best_value = value;
  }
  return best;
}

}  // namespace sluice

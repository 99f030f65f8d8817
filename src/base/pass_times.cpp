#include "base/pass_times.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace sluice {

void PassTimes::saw(int32_t rows, double seconds) {
  if (rows == 0) return;
  constexpr int64_t kUntilTriedAgain = 32;
  ++passes_;
  std::erase_if(seen_, [&](const auto& width) {
    const Seen& seen = width.second;
    return seen.n < std::ssize(seen.last) && passes_ - seen.at > kUntilTriedAgain;
  });
  Seen& seen = seen_[rows];
  seen.last[static_cast<size_t>(seen.n++) % seen.last.size()] = seconds;
  seen.at = passes_;
}

double PassTimes::believed(const Seen& seen) {
  const auto [a, b, c] = seen.last;
  if (seen.n == 1) return a;
  if (seen.n == 2) return std::min(a, b);
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

double PassTimes::seconds(int32_t rows) const {
  if (seen_.empty()) return 0.0;
  const auto above = seen_.lower_bound(rows);
  if (above == seen_.end()) return believed(seen_.rbegin()->second);
  if (above == seen_.begin() || above->first == rows) return believed(above->second);
  const auto below = std::prev(above);
  const double share = static_cast<double>(rows - below->first) / (above->first - below->first);
  return std::lerp(believed(below->second), believed(above->second), share);
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

#include "base/pass_times.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace sluice {

void PassTimes::saw(int32_t rows, double seconds) {
  if (rows == 0) return;
  ++passes_;
  constexpr int64_t kUntilDoubted = 32;  // passes; of what was seen twice four times as many
  for (auto& [width, other] : seen_) {
    if (other.n >= std::ssize(other.last) || passes_ - other.at <= (other.n == 1 ? 1 : 4) * kUntilDoubted) continue;
    other.doubt *= 0.8;
    other.at = passes_;
  }
  Seen& seen = seen_[rows];
  seen.last[static_cast<size_t>(seen.n++) % seen.last.size()] = seconds;
  seen.at = passes_;
  seen.doubt = 1.0;
}

double PassTimes::believed(const Seen& seen) {
  const auto [a, b, c] = seen.last;
  if (seen.n == 1) return seen.doubt * a;
  if (seen.n == 2) return seen.doubt * std::min(a, b);
  return std::max(std::min(a, b), std::min(std::max(a, b), c));
}

double PassTimes::seconds(int32_t rows) const {
  if (seen_.empty()) return 0.0;
  const auto above = seen_.lower_bound(rows);
  if (above == seen_.end()) {
    const auto& [narrowest, least] = *seen_.begin();
    const auto& [widest, most] = *seen_.rbegin();
    const double rise = std::max(0.0, believed(most) - believed(least));
    return believed(most) + (widest == narrowest ? 0.0 : rise * (rows - widest) / (widest - narrowest));
  }
  if (above->first == rows) return believed(above->second);
  if (above == seen_.begin()) return believed(above->second) * rows / above->first;
  const auto below = std::prev(above);
  const double share = static_cast<double>(rows - below->first) / (above->first - below->first);
  return std::lerp(believed(below->second), believed(above->second), share);
}

size_t PassTimes::best_addition(int32_t base, std::span<const double> gains, double seconds_per_gain) const {
  if (gains.empty()) return 0;
  const size_t least = base == 0 ? 1 : 0;
  size_t best = least;
  double sum = 0.0, best_value = -std::numeric_limits<double>::infinity();
  for (size_t n = 0; n <= gains.size(); ++n) {
    if (n > 0) sum += gains[n - 1];
    if (n < least) continue;
    const double value = sum * seconds_per_gain - seconds(base + static_cast<int32_t>(n));
    if (value > best_value) best = n, best_value = value;
  }
  return best;
}

// Between widths that were seen the average changes one way only, so the least is at one of them or at the end.
double PassTimes::least_price(int32_t base, int32_t most) const {
  const int32_t first = std::max(base, 1);
  if (most <= first) return 0.0;
  const double begin = seconds(first);
  const auto price = [&](int32_t rows) { return (seconds(rows) - begin) / (rows - first); };
  double least = price(most);
  for (auto at = seen_.upper_bound(first); at != seen_.end() && at->first < most; ++at)
    least = std::min(least, price(at->first));
  return std::max(0.0, least);
}

}  // namespace sluice

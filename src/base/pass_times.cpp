#include "base/pass_times.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace sluice {

void PassTimes::saw(int32_t rows, double seconds) {
  if (rows == 0) return;
  ++passes_;
  if (passes_ >= next_doubt_) {
    next_doubt_ = std::numeric_limits<int64_t>::max();
    for (Seen& other : seen_) {
      if (passes_ >= other.doubted_at()) {
        other.doubt *= 0.8;
        other.at = passes_;
        other.believe();
      }
      next_doubt_ = std::min(next_doubt_, other.doubted_at());
    }
  }
  auto at = seen_.begin() + (at_least(rows) - seen_.cbegin());
  if (at == seen_.end() || at->rows != rows) at = seen_.insert(at, Seen{.rows = rows});
  Seen& seen = *at;
  seen.last[static_cast<size_t>(seen.n++) % seen.last.size()] = seconds;
  seen.at = passes_;
  seen.doubt = 1.0;
  seen.believe();
  next_doubt_ = std::min(next_doubt_, seen.doubted_at());
}

void PassTimes::Seen::believe() {
  const auto [a, b, c] = last;
  if (n == 1)
    believed = doubt * a;
  else if (n == 2)
    believed = doubt * std::min(a, b);
  else
    believed = std::max(std::min(a, b), std::min(std::max(a, b), c));
}

int64_t PassTimes::Seen::doubted_at() const {
  constexpr int64_t kUntilDoubted = 32;  // passes; of what was seen twice four times as many
  if (n >= std::ssize(last)) return std::numeric_limits<int64_t>::max();
  return at + (n == 1 ? 1 : 4) * kUntilDoubted + 1;
}

// The first width that is not less; the end if there is none.
PassTimes::Widths::const_iterator PassTimes::at_least(int32_t rows) const {
  return std::lower_bound(seen_.begin(), seen_.end(), rows, [](const Seen& s, int32_t r) { return s.rows < r; });
}

double PassTimes::seconds(int32_t rows) const { return seconds(rows, at_least(rows)); }

// above: at_least(rows).
double PassTimes::seconds(int32_t rows, Widths::const_iterator above) const {
  if (seen_.empty()) return 0.0;
  if (above == seen_.end()) {
    const Seen &least = seen_.front(), &most = seen_.back();
    const double rise = std::max(0.0, most.believed - least.believed);
    return most.believed + (seen_.size() == 1 ? 0.0 : rise * (rows - most.rows) / (most.rows - least.rows));
  }
  if (above->rows == rows) return above->believed;
  if (above == seen_.begin()) return above->believed * rows / above->rows;
  const auto below = std::prev(above);
  const double share = static_cast<double>(rows - below->rows) / (above->rows - below->rows);
  return std::lerp(below->believed, above->believed, share);
}

size_t PassTimes::best_addition(int32_t base, std::span<const double> gains, double seconds_per_gain) const {
  if (gains.empty()) return 0;
  const int32_t least = base == 0 ? 1 : 0, most = static_cast<int32_t>(gains.size());
  int32_t best = least;
  double sum = 0.0, best_value = -std::numeric_limits<double>::infinity();
  auto above = at_least(base + least);
  for (int32_t n = 0; n <= most; ++n) {
    if (n > 0) sum += gains[static_cast<size_t>(n) - 1];
    if (n < least) continue;
    while (above != seen_.end() && above->rows < base + n) ++above;
    const double value = sum * seconds_per_gain - seconds(base + n, above);
    if (value > best_value) best = n, best_value = value;
  }
  return static_cast<size_t>(best);
}

// Between widths that were seen the average changes one way only, so the least is at one of them or at the end.
double PassTimes::least_price(int32_t base, int32_t most) const {
  const int32_t first = std::max(base, 1);
  if (most <= first) return 0.0;
  const double begin = seconds(first);
  double least = (seconds(most) - begin) / (most - first);
  for (auto at = at_least(first + 1); at != seen_.end() && at->rows < most; ++at)
    least = std::min(least, (at->believed - begin) / (at->rows - first));
  return std::max(0.0, least);
}

}  // namespace sluice

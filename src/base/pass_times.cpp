#include "base/pass_times.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

namespace sluice {

namespace {

// --- numbers that somebody chose: how fast is learnt, and what is doubted

constexpr double kNewestOfMany = 1.0 / 32, kNewestOfOld = 1.0 / 4;  // of a kind's running average
constexpr int64_t kStale = 16;                                      // passes after which what was seen last is old
constexpr double kMostOfUsual = 2.0;  // by which a time counts as longer or shorter: more is something else
constexpr double kMostNoise = 0.2;    // likewise of the noise: more says that something else held the pass up

// The pace follows the newest pass by such a part; less of a kind that was seen less often than this, of which it is as
// likely that its time is wrong.
constexpr double kNewestPace = 1.0 / 2, kWellKnown = 16.0;

// A kind's time is drawn to the line through its neighbours as far as so many of its standard errors; a kind counts in
// that line by how often it was seen, at most so often.
constexpr double kErrors = 2.0;
constexpr int64_t kMostOnLine = 16;

// A kind that was not seen for so many passes is thought more like its neighbours, at least by so much at a time; one
// seen twice after so many times as many, one that is sure after as many as that.
constexpr int64_t kUntilDoubted = 32, kSeenTwice = 4, kSure = 16;
constexpr double kDoubted = 0.8;

// An addition that gains less than such a part of the pass is left out once, if for kStale passes none went without:
// what it adds to a pass can't be told from passes that all have it. So is one that seems to shorten the pass.
constexpr double kLittle = 0.05, kShorter = 0.02;

// Wider than anything that was seen is tried by so many rows more, or such a part of what was seen.
constexpr int32_t kStep = 8, kPart = 4;

// ---

int32_t widest_of_kind(int32_t rows) {
  if (rows <= 8) return rows;
  const int32_t step = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(rows - 1))) / 4;
  return (rows + step - 1) / step * step;
}

}  // namespace

void PassTimes::saw(int32_t rows, double seconds) {
  if (rows == 0) return;
  constexpr double kTick = 1e-12;  // a simulated pass may take no time
  seconds = std::max(seconds, kTick);
  ++passes_;
  if (passes_ >= next_doubt_) doubt();
  const int32_t widest = widest_of_kind(rows);
  auto kind = seen_.begin() + (by_widest(widest) - seen_.cbegin());
  if (kind == seen_.end() || kind->widest != widest) kind = seen_.insert(kind, Kind{.widest = widest});
  if (kind->n > 0 && !kind->sure()) learn_noise(seconds / (pace_ * kind->seconds) - 1.0);
  if (kind->sure()) {
    const double pace = seconds / usual(rows, at_least(rows), &Kind::seconds);
    const double change = std::clamp(pace, pace_ / kMostOfUsual, pace_ * kMostOfUsual) / pace_ - 1.0;
    learn_noise(change);
    pace_ *= 1.0 + kNewestPace * std::min(1.0, static_cast<double>(kind->n) / kWellKnown) * change;
  }
  const double before = kind->seconds;
  kind->take({seconds / pace_, static_cast<double>(rows)}, passes_);
  next_doubt_ = std::min(next_doubt_, kind->doubted_at);
  if (kind->seconds != before || !kind->sure()) smooth_around(kind->rows);
}

void PassTimes::saw_others(int32_t rows, double seconds) {
  if (rows > 0 && (others_.rows == 0 || seconds * others_.rows < others_.seconds * rows))
    others_ = {seconds, static_cast<double>(rows)};
}

void PassTimes::learn_noise(double change) {
  const double away = std::min(std::abs(change), kMostNoise);
  noise_ += std::max(kNewestOfMany, 1.0 / static_cast<double>(++n_noise_)) * (away - noise_);
}

// Draws what was not seen of late down towards what the kinds beside it suggest.
void PassTimes::doubt() {
  next_doubt_ = kNever;
  for (size_t i = 0; i < seen_.size(); ++i) {
    Kind& kind = seen_[i];
    if (passes_ >= kind.doubted_at) {
      kind.forget();
      kind.seconds = std::max(kDoubted * kind.seconds, std::min(kind.seconds, without(i)));
      kind.wait(passes_);
      smooth_around(kind.rows);
    }
    next_doubt_ = std::min(next_doubt_, kind.doubted_at);
  }
}

// Seconds of a kind as the others have it: between two on a line, beyond the widest rising as on average before it.
double PassTimes::without(size_t kind) const {
  const double rows = seen_[kind].rows;
  if (seen_.size() == 1) return seen_[kind].seconds;
  if (kind == 0) return seen_[1].seconds;
  const Kind &below = seen_[kind - 1], &other = kind + 1 < seen_.size() ? seen_[kind + 1] : seen_.front();
  if (below.rows == other.rows) return below.seconds;
  const double slope = std::max(0.0, (other.seconds - below.seconds) / (other.rows - below.rows));
  return below.seconds + slope * (rows - below.rows);
}

// After a change of the kind of so many rows.
void PassTimes::smooth_around(double rows) {
  for (auto near = seen_.begin() + (beyond(rows / 2) - seen_.cbegin()); near != seen_.end() && near->rows < 2 * rows;
       ++near)
    near->smooth = smoothed(*near);
}

// The kind's own time where the line is further from it than its error explains: there the cost of a row changes.
double PassTimes::smoothed(const Kind& kind) const {
  const double error = kErrors * noise_ * kind.seconds / std::sqrt(static_cast<double>(kind.n));
  const double away = on_line(kind.rows) - kind.seconds;
  if (error == 0.0) return kind.seconds;
  return kind.seconds + away / (1.0 + (away / error) * (away / error));
}

// Of the line through the kinds of an octave to either side, the nearest and those that were seen often counting most
// (a local linear regression), where it passes `rows`.
double PassTimes::on_line(double rows) const {
  double weights = 0, x = 0, y = 0, xx = 0, xy = 0;  // sums; x: from `rows`
  for (auto near = beyond(rows / 2); near != seen_.end() && near->rows < 2 * rows; ++near) {
    const Kind& kind = *near;
    const double ratio = std::min(kind.rows, rows) / std::max(kind.rows, rows);
    const double weight = (2 * ratio - 1) * static_cast<double>(std::min(kind.n, kMostOnLine));
    const double away = kind.rows - rows;
    weights += weight, x += weight * away, y += weight * kind.seconds;
    xx += weight * away * away, xy += weight * away * kind.seconds;
  }
  const double spread = weights * xx - x * x;
  const double slope = spread > 1e-9 * weights * weights ? (weights * xy - x * y) / spread : 0.0;
  return (y - std::max(0.0, slope) * x) / weights;
}

void PassTimes::Kind::take(Pass pass, int64_t now) {
  const int64_t before = std::exchange(seen_at, now);
  if (sure()) {
    // The first three count as one, and what is old as little.
    const double least = now - before > kStale ? kNewestOfOld : kNewestOfMany;
    const double weight = std::max(least, 1.0 / static_cast<double>(++n - 2));
    rows += weight * (pass.rows - rows);
    seconds += weight * (std::clamp(pass.seconds, seconds / kMostOfUsual, seconds * kMostOfUsual) - seconds);
  } else {
    first[static_cast<size_t>(n++)] = pass;
    const auto& [a, b, c] = first;
    const Pass believed = n == 1 ? a : n == 2 ? std::min(a, b) : std::max(std::min(a, b), std::min(std::max(a, b), c));
    rows = believed.rows;
    seconds = believed.seconds;
  }
  wait(now);
}

// What was seen so long ago counts as seen once.
void PassTimes::Kind::forget() {
  if (!sure()) return;
  first = {Pass{seconds, rows}};
  n = 1;
}

void PassTimes::Kind::wait(int64_t now) {
  doubted_at = now + kUntilDoubted * (sure() ? kSure : n == 2 ? kSeenTwice : 1) + 1;
}

// The first kind whose widest is not less; the end if there is none.
PassTimes::Kinds::const_iterator PassTimes::by_widest(int32_t widest) const {
  return std::lower_bound(seen_.begin(), seen_.end(), widest, [](const Kind& k, int32_t w) { return k.widest < w; });
}

// The first width that is not less; the end if there is none.
PassTimes::Kinds::const_iterator PassTimes::at_least(int32_t rows) const {
  return std::lower_bound(seen_.begin(), seen_.end(), rows, [](const Kind& k, int32_t r) { return k.rows < r; });
}

// The first width that is more; the end if there is none.
PassTimes::Kinds::const_iterator PassTimes::beyond(double rows) const {
  return std::upper_bound(seen_.begin(), seen_.end(), rows, [](double r, const Kind& k) { return r < k.rows; });
}

// At the usual pace; above: at_least(rows).
double PassTimes::usual(int32_t rows, Kinds::const_iterator above, double Kind::*time) const {
  if (seen_.empty()) return 0.0;
  if (above == seen_.end()) return seen_.back().*time + rise(time) * (rows - seen_.back().rows);
  if (above->rows == rows) return (*above).*time;
  if (above == seen_.begin()) return (*above).*time * rows / above->rows;
  const auto below = std::prev(above);
  const double share = (rows - below->rows) / (above->rows - below->rows);
  return std::lerp((*below).*time, (*above).*time, share);
}

// Seconds a row beyond the widest. REQUIRES: a width is known.
double PassTimes::rise(double Kind::*time) const {
  const Kind &least = seen_.front(), &most = seen_.back();
  const Pass from{least.*time, least.rows};
  const Pass to = seen_.size() == 1 ? others_ : Pass{most.*time, most.rows};
  return to.rows > from.rows ? std::max(0.0, (to.seconds - from.seconds) / (to.rows - from.rows)) : 0.0;
}

bool PassTimes::stale(int32_t rows) const {
  const auto kind = by_widest(widest_of_kind(rows));
  const bool known = kind != seen_.end() && kind->widest == widest_of_kind(rows);
  return passes_ - (known ? kind->seen_at : 0) > kStale;
}

// The standard error of what is known of a kind.
double PassTimes::error(const Kind& kind) const {
  constexpr double kMost = 1.0 / kNewestOfMany;  // passes that a running average is of
  return noise_ * kind.seconds / std::sqrt(std::min(kMost, static_cast<double>(kind.n)));
}

size_t PassTimes::best_addition(int32_t base, std::span<const double> gains, double seconds_per_gain) const {
  if (gains.empty()) return 0;
  const int32_t least = base == 0 ? 1 : 0, most = static_cast<int32_t>(gains.size());
  int32_t best = least;
  double sum = 0.0, best_sum = 0.0, best_value = -std::numeric_limits<double>::infinity();
  auto above = at_least(base + least);
  const double error_without = above == seen_.end() ? 0.0 : error(*above);
  for (int32_t n = 0; n <= most; ++n) {
    if (n > 0) sum += gains[static_cast<size_t>(n) - 1];
    if (n < least) continue;
    while (above != seen_.end() && above->rows < base + n) ++above;
    double value = sum * seconds_per_gain - pace_ * usual(base + n, above, &Kind::smooth);
    // What was never seen is tried.
    if (n > least && above != seen_.end()) value -= pace_ * std::hypot(error_without, error(*above));
    if (value > best_value) best = n, best_value = value, best_sum = sum;
  }
  if (best == least || !stale(base + least)) return static_cast<size_t>(best);
  const double without = seconds(base + least), cost = seconds(base + best) - without;
  const bool doubtful =
      best_sum * seconds_per_gain - std::max(0.0, cost) < kLittle * without || cost < -kShorter * without;
  return static_cast<size_t>(doubtful ? least : best);
}

int32_t PassTimes::widest_try() const {
  if (seen_.size() == 1 && widest() > kStep) return widest() + widest() / kPart;
  return widest() + std::max(kStep, widest() / kPart);
}

// Between widths that were seen the average changes one way only, so the least is at one of them or at the end.
double PassTimes::least_price(int32_t base, int32_t most) const {
  const int32_t first = std::max(base, 1);
  if (most <= first) return 0.0;
  const double begin = seconds(first);
  double least = (seconds(most) - begin) / (most - first);
  for (auto at = at_least(first + 1); at != seen_.end() && at->rows < most; ++at)
    least = std::min(least, (pace_ * at->smooth - begin) / (at->rows - first));
  return std::max(0.0, least);
}

}  // namespace sluice

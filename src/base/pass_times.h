// What a pass through a stage takes by its rows, learnt from passes.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace sluice {

class PassTimes {
 public:
  // A stage has computed so many rows in so many seconds.
  void saw(int32_t rows, double seconds);

  // The median of a width's last three passes, of fewer the shortest. Between widths that were seen on a line; beyond
  // the widest rising as on average before it; of the narrowest its share, so that a width is tried before it is
  // thought too dear; 0 as long as nothing is known. A width that was seen less than three times is thought a little
  // less dear from while to while, and so tried again: otherwise one pass that something else held up would banish it
  // for good.
  double seconds(int32_t rows) const;

  // Of the widths that were seen; 0 if there is none.
  int32_t narrowest() const { return seen_.empty() ? 0 : seen_.front().rows; }
  int32_t widest() const { return seen_.empty() ? 0 : seen_.back().rows; }

  // How many rows beyond the first `base` pay: the number from 0 to gains.size() at which the sum of the first gains,
  // each worth `seconds_per_gain`, exceeds by most what their rows add to the pass. Where `base` is 0 the first row's
  // time is not asked for, and it counts at least.
  // gains: falling.
  size_t best_addition(int32_t base, std::span<const double> gains, double seconds_per_gain) const;

  // Seconds that a row beyond the first `base` costs at least, on average of any number of them up to `most` rows in
  // all: no row that saves less can pay.
  double least_price(int32_t base, int32_t most) const;

 private:
  struct Seen {
    int32_t rows = 0;
    std::array<double, 3> last{};
    int64_t n = 0;
    int64_t at = 0;  // the pass of the newest, or of the last doubt
    double doubt = 1.0;
    double believed = 0.0;  // seconds
    void believe();
    int64_t doubted_at() const;  // the pass; far away if it is sure
  };
  using Widths = std::vector<Seen>;
  Widths::const_iterator at_least(int32_t rows) const;
  double seconds(int32_t rows, Widths::const_iterator above) const;

  Widths seen_;  // by rows, rising
  int64_t passes_ = 0;
  int64_t next_doubt_ = std::numeric_limits<int64_t>::max();  // at the earliest, of any width
};

}  // namespace sluice

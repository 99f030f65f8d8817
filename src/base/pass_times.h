// What a pass through a stage takes by its rows, learnt from passes.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>

namespace sluice {

class PassTimes {
 public:
  // A stage has computed so many rows in so many seconds.
  void saw(int32_t rows, double seconds);

  // The median of a width's last three passes, of fewer the shortest. Between widths that were seen on a line; beyond
  // the widest as much as the widest, so that a width is tried before it is thought too dear; 0 as long as nothing is
  // known. A width that was seen less than three times is forgotten after a while, and so tried again: otherwise one
  // pass that something else held up would banish it for good.
  double seconds(int32_t rows) const;

  // The width from 1 to gains.size() at which the sum of the first gains, each worth `seconds_per_gain`, exceeds the
  // pass's time by most.
  // gains: falling. 0 if there are none.
  size_t best_width(std::span<const double> gains, double seconds_per_gain) const;

 private:
  struct Seen {
    std::array<double, 3> last{};
    int64_t n = 0;
    int64_t at = 0;  // the pass of the newest
  };
  static double believed(const Seen& seen);

  std::map<int32_t, Seen> seen_;  // by rows
  int64_t passes_ = 0;
};

}  // namespace sluice

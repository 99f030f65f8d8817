// What a pass through a stage takes by its rows, learnt from passes.
#pragma once

#include <cstdint>
#include <map>
#include <span>

namespace sluice {

class PassTimes {
 public:
  // A stage has computed so many rows in so many seconds.
  void saw(int32_t rows, double seconds);

  // Between widths that were seen on a line; beyond the widest as much as the widest, so that a width is tried before
  // it is thought too dear; 0 as long as nothing is known.
  double seconds(int32_t rows) const;

  // The width from 1 to gains.size() at which the sum of the first gains, each worth `seconds_per_gain`, exceeds the
  // pass's time by most.
  // gains: falling. 0 if there are none.
  size_t best_width(std::span<const double> gains, double seconds_per_gain) const;

 private:
  std::map<int32_t, double> seen_;  // rows -> seconds, a mean that forgets
};

}  // namespace sluice

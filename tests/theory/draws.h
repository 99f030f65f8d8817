// A stream of draws for simulations, the same at every run.
#pragma once

#include <gtest/gtest.h>

#include "base/random.h"

namespace sluice {

// Simulations agree with formulas within 2 %.
inline void expect_close(double simulated, double formula) { EXPECT_NEAR(simulated / formula, 1.0, 0.02); }

class Draws {
 public:
  explicit Draws(uint64_t seed) : site_{.seed = seed, .purpose = Purpose::kTest} {}

  double uniform() {
    if (used_ == block_.size()) {
      block_ = uniform4(site_, 0);
      ++site_.position;
      used_ = 0;
    }
    return block_[used_++];
  }

  bool chance(double probability) { return uniform() < probability; }

  // How many of `lookahead` drafted tokens are accepted, each being tried only if those before it were.
  int accepted(double acceptance, int lookahead) {
    int count = 0;
    while (count < lookahead && chance(acceptance)) ++count;
    return count;
  }

 private:
  DrawSite site_;
  std::array<double, 4> block_{};
  size_t used_ = 4;
};

}  // namespace sluice

// The largest of values that change one at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace sluice {

// Asking takes no time, and a change takes as long as looking at all of them only where the largest has fallen: so
// what all stages of a long pipeline say costs in proportion to what they say.
class Largest {
 public:
  explicit Largest(size_t n) : values_(std::max<size_t>(1, n)) {}  // all 0

  double value() const { return values_[at_]; }
  void set(size_t i, double value) {
    const bool falls = i == at_ && value < values_[i];
    values_[i] = value;
    if (falls)
      at_ = static_cast<size_t>(std::max_element(values_.begin(), values_.end()) - values_.begin());
    else if (value > values_[at_])
      at_ = i;
  }

 private:
  std::vector<double> values_;
  size_t at_ = 0;
};

}  // namespace sluice

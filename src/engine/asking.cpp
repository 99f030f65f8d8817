#include "engine/asking.h"

#include <algorithm>

namespace sluice {

bool Asking::pays() {
  constexpr int64_t kAtFirst = 4, kAgain = 32;
  if (n_ < kAtFirst || saved_ >= seconds_ || passed_over_ >= kAgain) {
    passed_over_ = 0;
    return true;
  }
  ++passed_over_;
  return false;
}

void Asking::learn(double seconds, double saved) {
  constexpr double kNewest = 1.0 / 8;
  const double weight = std::max(kNewest, 1.0 / static_cast<double>(++n_));
  seconds_ += weight * (seconds - seconds_);
  saved_ += weight * (saved - saved_);
}

}  // namespace sluice

#include "engine/asking.h"

#include <algorithm>

#include "engine/policy.h"

namespace sluice {

bool Asking::pays() {
  if (n_ < policy::kAskedAtFirst || saved_ >= seconds_ || passed_over_ >= policy::kAskedAgain) {
    passed_over_ = 0;
    return true;
  }
  ++passed_over_;
  return false;
}

void Asking::learn(double seconds, double saved) {
  const double weight = std::max(policy::kNewestAnswer, 1.0 / static_cast<double>(++n_));
  seconds_ += weight * (seconds - seconds_);
  saved_ += weight * (saved - saved_);
}

}  // namespace sluice

#include "transport/link_meter.h"

#include <algorithm>
#include <cmath>

namespace sluice {

void LinkMeter::saw(double bytes, double after, double came) {
  if (!first_) {
    first_ = came;
    return;
  }
  sent_ += after;
  came -= *first_;
  const double way = came - sent_;
  least_ = std::min(way, least_ + kForgets * (way - least_));
  const double seconds = came - std::max(last_, std::min(came, sent_ + least_));
  last_ = came;
  n_ = (1.0 - kNewest) * n_ + 1.0;
  const double part = 1.0 / n_, x = bytes - bytes_, y = seconds - seconds_;
  bytes_ += part * x;
  seconds_ += part * y;
  const auto add = [&](double& mean, double product) { mean += part * ((1.0 - part) * product - mean); };
  add(bytes_bytes_, x * x);
  add(bytes_seconds_, x * y);
  add(seconds_seconds_, y * y);
}

double LinkMeter::seconds_per_byte() const {
  constexpr double kFew = 4.0, kDoubt = 2.0;  // frames; standard errors
  if (n_ < kFew || bytes_bytes_ <= 0.0) return 0.0;
  const double slope = bytes_seconds_ / bytes_bytes_;
  const double rest = std::max(0.0, seconds_seconds_ - slope * bytes_seconds_);
  return slope > kDoubt * std::sqrt(rest / (bytes_bytes_ * (n_ - 2.0))) ? slope : 0.0;
}

}  // namespace sluice

// Whether results have the same bits, and how far apart they are if not.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "record.h"

namespace gpu {

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Trials that are compared with one reference.
class Comparison {
 public:
  void add(const std::vector<float>& reference, const std::vector<float>& other) {
    ++trials_;
    if (same_bits(reference, other)) return;
    ++differ_;
    double square = 0, most = 0;
    for (size_t i = 0; i < reference.size(); ++i) {
      square += std::pow(reference[i], 2.0);
      const double apart = std::abs(static_cast<double>(reference[i]) - static_cast<double>(other[i]));
      most = std::isnan(apart) ? INFINITY : std::max(most, apart);
    }
    const double rms = std::sqrt(square / static_cast<double>(reference.size()));
    most_ = std::max(most_, most / rms);
  }
  int differ() const { return differ_; }
  // How many trials, how many differ, and the largest difference as a share of the root mean square.
  Record& into(Record& record) const {
    record.set("trials", trials_).set("differ", differ_);
    if (differ_ > 0) record.set("most", std::isfinite(most_) ? most_ : 1e30);
    return record;
  }

 private:
  int trials_ = 0, differ_ = 0;
  double most_ = 0;
};

// A series of results of which each ought to be as the one before.
class Series {
 public:
  void add(int at, const std::vector<float>& result) {
    if (!last_.empty() && !same_bits(last_, result)) changes_.push_back(at);
    if (std::none_of(kinds_.begin(), kinds_.end(), [&](const auto& kind) { return same_bits(kind, result); })) {
      kinds_.push_back(result);
    }
    last_ = result;
  }
  // Where a result differs from the one before, and how many different ones there are.
  Record& into(Record& record) const {
    return record.set("changes_at", std::span<const int>(changes_)).set("kinds", kinds_.size());
  }

 private:
  std::vector<float> last_;
  std::vector<std::vector<float>> kinds_;
  std::vector<int> changes_;
};

}  // namespace gpu

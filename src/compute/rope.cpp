#include "compute/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/math.h"

namespace sluice {
namespace {

// YaRN (Peng et al., "YaRN: efficient context window extension", 2023, section 3.2): pairs that turn more than
// beta_fast times within the original context keep their frequency, those below beta_slow are interpolated, between
// them a ramp over the pairs.
class YarnRamp {
 public:
  explicit YarnRamp(const RopeParameters& p) {
    low_ = std::max(0.0, std::floor(pair_of(p, p.beta_fast)));
    high_ = std::min(static_cast<double>(p.n_dims - 1), std::ceil(pair_of(p, p.beta_slow)));
  }
  // The share of the original frequency that pair i keeps.
  double kept(int32_t i) const { return 1.0 - std::clamp((i - low_) / std::max(0.001, high_ - low_), 0.0, 1.0); }

 private:
  static double pair_of(const RopeParameters& p, double turns) {
    return p.n_dims * log_f64(p.original_context / (turns * 2 * std::numbers::pi)) / (2 * log_f64(p.base));
  }
  double low_, high_;
};

}  // namespace

Rope::Rope(const RopeParameters& p, std::span<const float> factors)
    : pairing_(p.pairing), magnitude_(p.attention_factor) {
  const bool yarn = p.scaling == RopeParameters::Scaling::kYarn && p.extrapolation_mix != 0.0f;
  const double shrink = p.scaling == RopeParameters::Scaling::kNone ? 1.0 : 1.0 / p.factor;
  if (yarn) magnitude_ *= static_cast<float>(1.0 + 0.1 * log_f64(p.factor));
  for (int32_t i = 0; i < p.n_dims / 2; ++i) {
    double frequency = exp_f64(log_f64(p.base) * (-2.0 * i / p.n_dims));
    if (!factors.empty()) frequency /= factors[static_cast<size_t>(i)];
    const double kept = yarn ? YarnRamp(p).kept(i) * p.extrapolation_mix : 0.0;
    frequencies_.push_back(frequency * (shrink * (1.0 - kept) + kept));
  }
}

void Rope::angles(int32_t position, std::span<float> out) const {
  const size_t n = frequencies_.size();
  for (size_t i = 0; i < n; ++i) {
    const SinCos turn = sin_cos_f64(position * frequencies_[i]);
    out[i] = static_cast<float>(turn.cos) * magnitude_;
    out[n + i] = static_cast<float>(turn.sin) * magnitude_;
  }
}

void Rope::turn(std::span<const float> angles, float* head) const {
  const size_t n = frequencies_.size();
  const bool adjacent = pairing_ == RopeParameters::Pairing::kAdjacent;
  const size_t step = adjacent ? 2 : 1, apart = adjacent ? 1 : n;
  for (size_t i = 0; i < n; ++i) {
    const float c = angles[i], s = angles[n + i];
    float &x = head[i * step], &y = head[i * step + apart];
    const float x0 = x, y0 = y;
    x = x0 * c - y0 * s;
    y = x0 * s + y0 * c;
  }
}

}  // namespace sluice

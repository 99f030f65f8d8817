// What a layer does to single values: norms, rotary embedding, activation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model_file.h"

namespace sluice {

// out[i] = x[i] * weight[i] / sqrt(mean(x^2) + epsilon). x and out may be the same.
void rms_norm(std::span<const float> x, std::span<const float> weight, float epsilon, std::span<float> out);

// gate[i] = silu(gate[i]) * up[i], silu(x) = x / (1 + e^-x).
void silu_times(std::span<float> gate, std::span<const float> up);

// x = softmax(x). The sum is of eight partial sums, by i mod 8.
void softmax(std::span<float> x);

// The angles by which a model turns queries and keys: a pure function of the position.
class Rope {
 public:
  // `factors`: [n_dims / 2] f32, frequencies are divided by them; or empty.
  Rope(const RopeParameters& parameters, std::span<const float> factors);

  // Floats that angles() writes: cosines, then sines, of n_dims / 2 pairs.
  int32_t size() const { return 2 * static_cast<int32_t>(frequencies_.size()); }
  void angles(int32_t position, std::span<float> out) const;

  // Turns one head's first n_dims values.
  void turn(std::span<const float> angles, float* head) const;

 private:
  RopeParameters::Pairing pairing_;
  float magnitude_ = 1.0f;
  std::vector<double> frequencies_;  // radians a position, of each pair
};

}  // namespace sluice

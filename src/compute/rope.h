// Rotary embedding.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/model_file.h"

namespace sluice {

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

// Hidden states as they go from a stage to the next in half the bytes.
#pragma once

#include <cstdint>
#include <span>

#include "base/half.h"

namespace sluice {

// Rounds to the nearest number that f16 holds, ties to even. What is beyond its largest number becomes that; NaN stays
// NaN. Gives how many were beyond it.
int64_t round_to_half(std::span<float> states);

// out: [states]. What has been rounded is kept to the bit.
void to_halves(std::span<const float> states, std::span<Half> out);
void from_halves(std::span<const Half> states, std::span<float> out);

}  // namespace sluice

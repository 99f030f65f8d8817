#include "compute/rounding.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/result.h"
#include "compute/kernels/kernels.h"

namespace sluice {

int64_t round_to_half(std::span<float> states) {
  std::array<Half, 256> halves;
  int64_t n_beyond = 0;
  while (!states.empty()) {
    const auto some = states.first(std::min(states.size(), halves.size()));
    for (float& x : some) {
      n_beyond += std::fabs(x) > kLargestHalf;
      x = std::clamp(x, -kLargestHalf, kLargestHalf);
    }
    to_halves(some, std::span(halves).first(some.size()));
    from_halves(std::span(halves).first(some.size()), some);
    states = states.subspan(some.size());
  }
  return n_beyond;
}

void to_halves(std::span<const float> states, std::span<Half> out) {
  SLUICE_CHECK(states.size() == out.size(), "a half for each number");
  kernels::kernels().to_halves(states.data(), std::ssize(states), out.data());
}

void from_halves(std::span<const Half> states, std::span<float> out) {
  SLUICE_CHECK(states.size() == out.size(), "a number for each half");
  kernels::kernels().from_halves(states.data(), std::ssize(states), out.data());
}

}  // namespace sluice

// The random choices that rule `reject` makes, behind one seam: a test can go through all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "base/random.h"

namespace sluice {

// Chooses i with probability weights[i] / sum(weights); `index` tells apart the choices that are made at one site.
// REQUIRES: no weight is negative, and one is positive.
using Choose = std::function<size_t(const DrawSite& site, uint32_t index, std::span<const double> weights)>;

// By the noise of the site: the same arguments, the same choice, on every machine.
size_t choose_by_noise(const DrawSite& site, uint32_t index, std::span<const double> weights);

}  // namespace sluice

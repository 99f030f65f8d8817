// Who gets how much of what is short.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace sluice {

// Deals `budget` out to those who want `wants[i]` each: round by round in their order, a quantum a turn, until all is
// dealt or nobody wants more. So nobody lacks more than a quantum of what another has, unless he wants less.
// REQUIRES: quantum > 0.
std::vector<size_t> shares(std::span<const size_t> wants, size_t budget, size_t quantum);

}  // namespace sluice

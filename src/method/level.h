// Trees that grow level by level, as several methods need them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "method/method.h"

namespace sluice {

// Section 3.3.3, fixed-width tree: of the candidates of the deepest level's nodes, the `width` with the highest
// cumulative probability become its next level, in that order; none that is not above `floor`.
void append_level(TokenTree& tree, int32_t width, const Floor& floor = {});

// The position of the first level of which some node waits: has not entered the target. None if all have entered.
std::optional<int32_t> first_waiting_level(const Speculation& speculation);

// The nodes that wait of the first `count` levels from that one, level by level and best first.
std::vector<NodeId> first_waiting_levels(const Speculation& speculation, int32_t count);

}  // namespace sluice

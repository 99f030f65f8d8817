// Trees that grow level by level, as several methods need them.
#pragma once

#include <vector>

#include "method/method.h"

namespace sluice {

// Section 3.3.3, fixed-width tree: of the candidates of the deepest level's nodes, the `width` with the highest
// cumulative probability become its next level, in that order; none that is not above `floor`.
void append_level(TokenTree& tree, int32_t width, const Floor& floor = {});

// The nodes that have not entered the model, in the order of their ids.
std::vector<NodeId> waiting_nodes(const Speculation& speculation);

// The nodes of the first `count` levels that have not entered the model, level by level and best first.
std::vector<NodeId> first_waiting_levels(const Speculation& speculation, int32_t count);

}  // namespace sluice

// Trees that grow level by level, as several methods need them.
#pragma once

#include <vector>

#include "method/method.h"

namespace sluice {

// Section 3.3.3, fixed-width tree: of the candidates of the deepest level's nodes, the `width` with the highest
// cumulative probability become its next level, in that order; none that is not above `floor`.
void append_level(TokenTree& tree, int32_t width, const Floor& floor = {});

// A node that has not entered the model.
struct Waiting {
  int32_t position;
  NodeId node;
  auto operator<=>(const Waiting&) const = default;
};

// All of them, in the order of their ids.
std::vector<Waiting> waiting_nodes(const Speculation& speculation);

// Those of their first `count` levels, level by level and best first.
std::vector<NodeId> first_waiting_levels(const Speculation& speculation, int32_t count);

}  // namespace sluice

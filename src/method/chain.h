// Chains of first choices, as several methods need them.
#pragma once

#include <vector>

#include "method/method.h"

namespace sluice {

struct Chain {
  std::vector<NodeId> nodes;  // from the node that it began with, downwards
  bool undrafted = false;     // it should be longer: a source has not spoken of its last node
};

// Follows the source's first choices from `from` down to `length` tokens below it, at most to `last_position`,
// appending those that are no nodes yet. It ends early where the source has nothing to say. Tokens that were foretold
// cost no draft pass and do not count, as long as the path is likelier than policy::kLeastFree; with `length` of them a
// chain is long enough for no draft to be waited for. Behind a path that is less likely than `p_min` it ends: no draft
// is waited for, and of several tokens that were drafted at once the others are left out.
Chain grow_chain(TokenTree& tree, NodeId from, int32_t length, int32_t last_position, double p_min = 0.0);

}  // namespace sluice

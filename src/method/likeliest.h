// Trees that grow wherever the next token is likeliest, at any depth.
#pragma once

#include <functional>
#include <vector>

#include "method/method.h"

namespace sluice {

// Of the nodes that `wanted` names and the candidates that are no nodes yet, the `count` of highest cumulative
// probability above `floor`; those that are candidates become nodes. Best first, so parents come before
// children. No candidate becomes a node beyond `last_position`.
std::vector<NodeId> likeliest(TokenTree& tree, const std::function<bool(const TokenTree::Node&)>& wanted, size_t count,
                              const Floor& floor, int32_t last_position);

}  // namespace sluice

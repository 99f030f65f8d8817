#include "method/chain.h"

namespace sluice {

Chain grow_chain(TokenTree& tree, NodeId from, int32_t length, int32_t last_position) {
  Chain chain{.nodes = {from}};
  while (static_cast<int32_t>(chain.nodes.size()) <= length) {
    const auto& tip = tree.node(chain.nodes.back());
    if (tip.position >= last_position) return chain;
    if (!tip.drafted) {
      chain.undrafted = true;
      return chain;
    }
    if (tip.candidates.empty()) return chain;
    const auto [token, probability] = tip.candidates.front();
    const auto known = tree.child(tip.id, token);
    chain.nodes.push_back(known ? *known : tree.append(tip.id, token, probability));
  }
  return chain;
}

}  // namespace sluice

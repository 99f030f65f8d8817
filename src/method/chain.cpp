#include "method/chain.h"

#include <cmath>

namespace sluice {

Chain grow_chain(TokenTree& tree, NodeId from, int32_t length, int32_t last_position) {
  Chain chain{.nodes = {from}};
  const double begin = tree.node(from).log_path;
  int32_t left = length;
  for (;;) {
    const auto& tip = tree.node(chain.nodes.back());
    if (tip.position >= last_position) return chain;
    if (tip.candidates.empty()) {
      chain.undrafted = !tip.drafted && left > 0;
      return chain;
    }
    const auto [token, probability] = tip.candidates.front();
    const auto known = tree.child(tip.id, token);
    const bool free = known ? tree.node(*known).free : !tip.drafted;
    const bool worth = tip.log_path - begin + std::log(probability) > kLeastFree;
    if (free ? !worth : left == 0) {
      chain.undrafted = !tip.drafted && left > 0;
      return chain;
    }
    left -= !free;
    chain.nodes.push_back(known ? *known : tree.append(tip.id, token, probability));
  }
}

}  // namespace sluice

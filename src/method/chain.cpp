#include "method/chain.h"

#include <cmath>

#include "method/policy.h"

namespace sluice {

Chain grow_chain(TokenTree& tree, NodeId from, int32_t length, int32_t last_position, double p_min) {
  Chain chain{.nodes = {from}};
  const double begin = tree.node(from).log_path;
  int32_t left = length, n_free = 0;
  const auto sure = [&](const TokenTree::Node& tip) { return tip.log_path - begin >= std::log(p_min); };
  const auto end = [&](const TokenTree::Node& tip) {
    chain.undrafted = !tip.drafted && left > 0 && n_free < length && sure(tip);
    return chain;
  };
  for (;;) {
    const auto& tip = tree.node(chain.nodes.back());
    if (tip.position >= last_position) return chain;
    if (tip.candidates.empty()) return end(tip);
    const auto [token, probability] = tip.candidates.front();
    const auto known = tree.child(tip.id, token);
    const bool free = known ? tree.node(*known).free : !tip.drafted;
    const bool worth = tip.log_path - begin + std::log(probability) > policy::kLeastFree;
    if (free ? !worth : left == 0 || !sure(tip)) return end(tip);
    if (free) {
      ++n_free;
    } else {
      --left;
    }
    chain.nodes.push_back(known ? *known : tree.append(tip.id, token, probability));
  }
}

}  // namespace sluice

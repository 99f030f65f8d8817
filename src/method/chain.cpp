#include "method/chain.h"

#include <cmath>

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
    const bool worth = tip.log_path - begin + std::log(probability) > kLeastFree;
    if (free ? !worth : left == 0 || !sure(tip)) return end(tip);
    if (free) {
      ++n_free;
    } else {
      --left;
    }
    chain.nodes.push_back(known ? *known : tree.append(tip.id, token, probability));
  }
}

void drop_what_costs_more(const TokenTree& tree, const PassTimes* times, double seconds_per_token, Chain& chain) {
  if (times == nullptr) return;
  std::vector<double> gains;
  const double begin = tree.node(chain.nodes.front()).log_path;
  for (const NodeId node : chain.nodes) gains.push_back(std::exp(tree.node(node).log_path - begin));
  const size_t pays = times->best_width(gains, seconds_per_token);
  while (chain.nodes.size() > pays && tree.node(chain.nodes.back()).free) chain.nodes.pop_back();
}

}  // namespace sluice

#include "method/sd.h"

#include "method/chain.h"

namespace sluice {

Proposal SpeculativeDecoding::propose(Speculation& speculation, const Idle& idle) {
  TokenTree& tree = speculation.tree;
  if (speculation.target.entered(tree.root().id)) return {};  // the chain is being verified
  Chain chain = grow_chain(tree, tree.root().id, length_, speculation.last_position, p_min_);
  if (chain.undrafted) return {.enter = {}, .expand = {{chain.nodes.back()}}};
  if (!idle.first_stage) return {};
  return {.enter = std::move(chain.nodes), .expand = {}};
}

}  // namespace sluice

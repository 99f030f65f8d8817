#include "method/sd.h"

#include "method/chain.h"

namespace sluice {

Proposal SpeculativeDecoding::propose(Speculation& speculation, const Idle& idle) {
  TokenTree& tree = speculation.tree;
  if (speculation.target.entered(tree.root().id)) return {};  // the chain is being verified
  const Chain chain = grow_chain(tree, tree.root().id, length_, speculation.last_position);
  if (chain.undrafted) return {.enter = {}, .expand = {{chain.nodes.back()}}};
  return {.enter = idle.first_stage ? chain.nodes : std::vector<NodeId>(), .expand = {}};
}

}  // namespace sluice

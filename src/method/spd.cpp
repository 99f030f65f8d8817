#include "method/spd.h"

#include "method/chain.h"
#include "method/level.h"

namespace sluice {

// The next level, once the source has spoken of the whole deepest one.
void SpeculativePipelineDecoding::grow(Speculation& speculation) const {
  TokenTree& tree = speculation.tree;
  if (tree.deepest() >= speculation.last_position) return;
  const std::vector<NodeId> level = tree.frontier();
  for (const NodeId id : level)
    if (!tree.node(id).drafted) return;
  if (width_ == 1)
    grow_chain(tree, level.front(), 1, speculation.last_position);
  else
    append_level(tree, width_);
}

Proposal SpeculativePipelineDecoding::propose(Speculation& speculation, const Idle& idle) {
  TokenTree& tree = speculation.tree;
  Proposal proposal;
  if (idle.first_stage) {
    proposal.enter = first_waiting_levels(speculation, 1);
    if (proposal.enter.empty()) {
      grow(speculation);
      proposal.enter = first_waiting_levels(speculation, 1);
    }
  }
  if (tree.deepest() < speculation.last_position)
    for (const NodeId id : tree.frontier())
      if (!tree.node(id).drafted) proposal.expand.push_back({id});
  return proposal;
}

}  // namespace sluice

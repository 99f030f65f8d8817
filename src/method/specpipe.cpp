#include "method/specpipe.h"

#include <algorithm>

#include "method/level.h"

namespace sluice {

Proposal SpecPipe::propose(Speculation& speculation, const Idle& idle) {
  TokenTree& tree = speculation.tree;
  Proposal proposal;
  if (idle.first_stage) proposal.enter = first_waiting_level(speculation);
  if (!proposal.enter.empty() || tree.deepest() >= speculation.last_position) return proposal;

  // Every level has entered: the next one grows from the deepest, once the source has spoken of all its nodes.
  for (const NodeId id : frontier(tree))
    if (!tree.node(id).drafted) proposal.expand.push_back({id});
  if (proposal.expand.empty() && idle.first_stage) {
    append_level(tree, width_);
    proposal.enter = first_waiting_level(speculation);
  }
  return proposal;
}

}  // namespace sluice

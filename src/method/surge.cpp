#include "method/surge.h"

#include "method/likeliest.h"

namespace sluice {

Proposal Surge::propose(Speculation& speculation, const Idle& idle) {
  TokenTree& tree = speculation.tree;
  Proposal proposal;
  if (idle.first_stage)
    proposal.enter = likeliest(
        tree, [&](const TokenTree::Node& node) { return !speculation.target.entered(node.id); },
        static_cast<size_t>(rows_), kFloor, speculation.last_position);
  if (idle.source())
    for (const NodeId node : likeliest(
             tree, [&](const TokenTree::Node& n) { return !n.drafted && n.position < speculation.last_position; },
             static_cast<size_t>(draft_rows_), kFloor, speculation.last_position - 1))
      proposal.expand.push_back({node});
  return proposal;
}

}  // namespace sluice

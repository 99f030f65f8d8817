#include "method/surge.h"

#include "method/likeliest.h"

namespace sluice {

Proposal Surge::propose(Speculation& speculation, const Idle& idle) {
  TokenTree& tree = speculation.tree;
  Proposal proposal;
  const auto undrafted = [&](const TokenTree::Node& n) { return !n.drafted && n.position < speculation.last_position; };
  if (idle.first_stage)
    proposal.enter = likeliest(
        tree, [&](const TokenTree::Node& node) { return !speculation.target.entered(node.id); },
        static_cast<size_t>(rows_), kFloor, speculation.last_position);
  if (idle.answers_at_once()) {  // then only what is about to enter needs a guess, and not before all of it has one
    for (const NodeId node : proposal.enter)
      if (undrafted(tree.node(node))) proposal.expand.push_back({node});
    if (!proposal.expand.empty()) proposal.enter.clear();
  } else if (idle.source()) {
    for (const NodeId node :
         likeliest(tree, undrafted, static_cast<size_t>(draft_rows_), kFloor, speculation.last_position - 1))
      proposal.expand.push_back({node});
  }
  return proposal;
}

}  // namespace sluice

#include "method/surge.h"

#include <algorithm>

#include "method/likeliest.h"
#include "method/policy.h"

namespace sluice {

Proposal Surge::propose(Speculation& speculation, const Idle& idle) {
  TokenTree& tree = speculation.tree;
  Proposal proposal;
  const auto undrafted = [&](const TokenTree::Node& n) { return !n.drafted && n.position < speculation.last_position; };
  const Floor floor(std::max(policy::kUnlikely, idle.floor.path), idle.floor.each);
  if (idle.first_stage) {
    const auto waits = [&](const TokenTree::Node& node) { return !speculation.target.entered(node.id); };
    proposal.enter =
        likeliest(tree, waits, std::min(static_cast<size_t>(rows_), idle.rows), floor, speculation.last_position);
  }
  if (idle.answers_at_once()) {  // then only what is about to enter needs a guess, and not before all of it has one
    for (const NodeId id : proposal.enter) {
      const TokenTree::Node& node = tree.node(id);
      const bool may_pay = node.log_path > floor.at(tree, node.position + 1);  // what is sure to come after it
      if (may_pay && undrafted(node)) proposal.expand.push_back({id});
    }
    if (!proposal.expand.empty()) proposal.enter.clear();
  } else if (idle.source()) {
    const int32_t most = draft_rows_ > 0 ? draft_rows_ : policy::kMostDraftRows;
    auto asks = likeliest(tree, undrafted, static_cast<size_t>(most), policy::kUnlikely, speculation.last_position - 1);
    proposal.as_pays = draft_rows_ == 0;
    for (const NodeId node : asks) proposal.expand.push_back({node});
  }
  return proposal;
}

}  // namespace sluice

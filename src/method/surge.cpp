#include "method/surge.h"

#include <cmath>

#include "method/likeliest.h"

namespace sluice {

namespace {

// The nodes, likeliest first, without those whose rows would cost more time than they can be expected to save: a node
// saves the time of a token if it is on the path.
void keep_what_pays(const TokenTree& tree, const PassTimes* times, double seconds_per_token,
                    std::vector<NodeId>& nodes) {
  if (times == nullptr || nodes.empty()) return;
  std::vector<double> gains;
  for (const NodeId node : nodes) gains.push_back(std::exp(tree.node(node).log_path));
  nodes.resize(times->best_width(gains, seconds_per_token));
}

}  // namespace

Proposal Surge::propose(Speculation& speculation, const Idle& idle) {
  TokenTree& tree = speculation.tree;
  Proposal proposal;
  const auto undrafted = [&](const TokenTree::Node& n) { return !n.drafted && n.position < speculation.last_position; };
  if (idle.first_stage) {
    const auto waits = [&](const TokenTree::Node& node) { return !speculation.target.entered(node.id); };
    proposal.enter = likeliest(tree, waits, static_cast<size_t>(rows_), kFloor, speculation.last_position);
    keep_what_pays(tree, idle.stage_times, idle.seconds_per_token, proposal.enter);
  }
  if (idle.answers_at_once()) {  // then only what is about to enter needs a guess, and not before all of it has one
    for (const NodeId node : proposal.enter)
      if (undrafted(tree.node(node))) proposal.expand.push_back({node});
    if (!proposal.expand.empty()) proposal.enter.clear();
  } else if (idle.source()) {
    const int32_t most = draft_rows_ > 0 ? draft_rows_ : kMostDraftRows;
    auto asks = likeliest(tree, undrafted, static_cast<size_t>(most), kFloor, speculation.last_position - 1);
    if (draft_rows_ == 0) keep_what_pays(tree, idle.draft_times, idle.seconds_per_token, asks);
    for (const NodeId node : asks) proposal.expand.push_back({node});
  }
  return proposal;
}

}  // namespace sluice

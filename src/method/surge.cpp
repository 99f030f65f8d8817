#include "method/surge.h"

#include <algorithm>
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

// The first stage is free and a source's answer under way. What enters now comes that much earlier than if it waited;
// what the answer brings then finds the stage busy and comes up to a step later. The more likely side decides.
bool better_to_wait(const Speculation& speculation, const Idle& idle, const std::vector<NodeId>& ready) {
  if (idle.target == nullptr) return false;
  const double step = idle.target->seconds(static_cast<int32_t>(ready.size()));
  if (idle.answer_in >= step) return false;
  const TokenTree& tree = speculation.tree;
  double now = 0.0, then = 0.0;
  for (const NodeId node : ready) now += std::exp(tree.node(node).log_path);
  for (const auto& node : tree.nodes()) {
    const auto asked = [&](const Residency& draft) { return draft.entered(node.id); };
    if (!node.drafted && std::any_of(speculation.drafts.begin(), speculation.drafts.end(), asked))
      then += std::exp(node.log_path);
  }
  return now * idle.answer_in < then * (step - idle.answer_in);
}

}  // namespace

Proposal Surge::propose(Speculation& speculation, const Idle& idle) {
  TokenTree& tree = speculation.tree;
  Proposal proposal;
  const auto undrafted = [&](const TokenTree::Node& n) { return !n.drafted && n.position < speculation.last_position; };
  if (idle.first_stage) {
    const auto waits = [&](const TokenTree::Node& node) { return !speculation.target.entered(node.id); };
    proposal.enter = likeliest(tree, waits, static_cast<size_t>(rows_), kFloor, speculation.last_position);
    keep_what_pays(tree, idle.target, idle.seconds_per_token, proposal.enter);
    if (better_to_wait(speculation, idle, proposal.enter)) proposal.enter.clear();
  }
  if (idle.answers_at_once()) {  // then only what is about to enter needs a guess, and not before all of it has one
    for (const NodeId node : proposal.enter)
      if (undrafted(tree.node(node))) proposal.expand.push_back({node});
    if (!proposal.expand.empty()) proposal.enter.clear();
  } else if (idle.source()) {
    const int32_t most = draft_rows_ > 0 ? draft_rows_ : kMostDraftRows;
    auto asks = likeliest(tree, undrafted, static_cast<size_t>(most), kFloor, speculation.last_position - 1);
    if (draft_rows_ == 0) keep_what_pays(tree, idle.draft, idle.seconds_per_token, asks);
    for (const NodeId node : asks) proposal.expand.push_back({node});
  }
  return proposal;
}

}  // namespace sluice

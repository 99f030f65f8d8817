#include "method/specpipe.h"

#include <algorithm>

#include "method/level.h"

namespace sluice {

namespace {

// Of the deepest level, below which nodes may pay.
std::vector<Ask> undrafted_frontier(const TokenTree& tree, const Floor& floor) {
  std::vector<Ask> asks;
  const double lowest = floor.at(tree, tree.deepest() + 1);
  for (const NodeId id : tree.frontier())
    if (!tree.node(id).drafted && tree.node(id).log_path > lowest) asks.push_back({id});
  return asks;
}

}  // namespace

Proposal SpecPipe::propose(Speculation& speculation, const Idle& idle) {
  TokenTree& tree = speculation.tree;
  Proposal proposal;
  if (!idle.first_stage && idle.answers_at_once()) return proposal;
  if (idle.first_stage) {
    // The last level is chosen as late as can be, when the newest verdict is known.
    grow(speculation, levels_, idle);
    proposal.enter = first_waiting_levels(speculation, levels_);
    cut_to_part(proposal.enter);
    if (!proposal.enter.empty() && idle.answers_at_once()) return proposal;
  } else {
    grow(speculation, levels_ - 1, idle);
  }
  // The source guesses the next level from the one that enters now, or entered last, while the pipeline computes.
  const int32_t waiting = idle.first_stage ? 0 : waiting_levels(speculation);
  if (waiting < levels_ && tree.deepest() < speculation.last_position)
    proposal.expand = undrafted_frontier(tree, idle.floor);
  return proposal;
}

// Levels that have not entered, from the first of them to the deepest.
int32_t SpecPipe::waiting_levels(const Speculation& speculation) const {
  const int32_t deepest = speculation.tree.deepest();
  int32_t first = deepest + 1;
  for (const NodeId id : waiting_nodes(speculation)) first = std::min(first, speculation.tree.node(id).position);
  return deepest + 1 - first;
}

// With stages in groups, as many mini-batches as a group has stages hold a level together: the likeliest nodes go
// first, and the next level begins when the last have entered.
void SpecPipe::cut_to_part(std::vector<NodeId>& level) const {
  const int32_t part = (width_ * levels_ + group_ - 1) / group_;
  level.resize(std::min(level.size(), static_cast<size_t>(part)));
}

// Until so many levels wait, or the source has not yet spoken of all nodes of the deepest.
void SpecPipe::grow(Speculation& speculation, int32_t levels, const Idle& idle) {
  TokenTree& tree = speculation.tree;
  for (int32_t waiting = waiting_levels(speculation); waiting < levels; ++waiting) {
    if (tree.deepest() >= speculation.last_position || !undrafted_frontier(tree, idle.floor).empty()) return;
    const size_t before = tree.size();
    append_level(tree, static_cast<int32_t>(std::min(static_cast<size_t>(width_), idle.rows)), idle.floor);
    if (tree.size() == before) return;  // the source has nothing to say
  }
}

}  // namespace sluice

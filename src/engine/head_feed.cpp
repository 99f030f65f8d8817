#include "engine/head_feed.h"

#include <algorithm>
#include <span>

#include "pipeline/cost_model.h"

namespace sluice {

HeadFeed::HeadFeed(const HeadParameters& head, std::span<const LayerRange> cuts)
    : kind_(head.kind),
      n_stages_(static_cast<int32_t>(cuts.size())),
      timing_(head.kind == HeadKind::kSpd && head.output_timing ? 1 : 0),
      passed_(cuts.size()) {
  for (const auto& layers : head.taps) {
    const int32_t last = std::ranges::max(layers);
    needs_.push_back(last > 0 ? stage_of_layer(cuts, last) : -1);
  }
  if (!needs_.empty()) last_tap_ = std::ranges::max(needs_);
}

void HeadFeed::arrived(const TapsArrived& taps) {
  SLUICE_CHECK(taps.stage.valid() && static_cast<size_t>(taps.stage.value) < passed_.size(),
               "states come from one of the target's stages");
  passed_[static_cast<size_t>(taps.stage.value)] = taps.batch;
}

bool HeadFeed::knows_committed(const Request& request) const {
  return request.last_verified.valid() && passed(request.last_verified, last_tap_);
}

size_t HeadFeed::rows_at_hand(const Request& request, size_t there) const {
  const auto& entered = request.committed_in;
  const auto unknown = std::partition_point(entered.begin(), entered.end(),
                                            [&](const auto& entry) { return passed(entry.first, last_tap_); });
  if (unknown == entered.begin()) return 0;
  const size_t end = std::min(std::prev(unknown)->second + (takes_token_before() ? 1 : 0), request.tokens.size() - 1);
  return end - std::min(there, end);
}

bool HeadFeed::can_guess(const Request& request, NodeId node) const {
  const Speculation& speculation = request.speculation;
  if (takes_token_before()) return true;
  const Resident* resident = speculation.target.find(node);
  if (resident == nullptr) return false;
  if (kind_ == HeadKind::kExit) return passed(resident->batch, last_tap_);
  int32_t distance = 0;
  for (; node.valid(); node = speculation.tree.node(node).parent, ++distance) {
    const int32_t depth = depth_at(distance);
    const int32_t stage = needs_[static_cast<size_t>(depth)];
    if (stage >= 0 && !passed(speculation.target.find(node)->batch, stage)) return false;
  }
  return true;
}

Cell HeadFeed::cell_of_committed(const Request& request, size_t i) const {
  const auto committed = request.speculation.target.committed();
  if (!takes_token_before()) return committed[i];
  return i == 0 ? Cell() : committed[i - 1];
}

// Of the first `n` committed tokens those that entered as guesses: their states are known now, for good.
void HeadFeed::refresh_committed(const Request& request, size_t n, Residency& there, Batch& batch) const {
  for (; there.settled < n; ++there.settled) {
    const size_t i = there.settled;
    if (kind_ == HeadKind::kExit || !cell_of_committed(request, i).valid()) continue;  // these never change
    batch.refreshes.push_back({.sequence = request.sequence,
                               .token = request.tokens[i],
                               .position = static_cast<int32_t>(i),
                               .own = there.committed()[i],
                               .cell = cell_of_committed(request, i),
                               .depth = n_stages_,
                               .last = true});
  }
}

// SPD: the tokens in flight before the node, the oldest first, each at the depth of its distance.
void HeadFeed::refresh_ancestors(const Request& request, NodeId node, const Residency& there, Batch& batch) const {
  const TokenTree& tree = request.speculation.tree;
  std::vector<Refresh> refreshes;
  // Rows of a request lie side by side.
  const auto others = std::ranges::find_if(batch.refreshes.rbegin(), batch.refreshes.rend(),
                                           [&](const Refresh& one) { return one.sequence != request.sequence; });
  const std::span ours(others.base(), batch.refreshes.end());
  int32_t distance = 1;
  for (NodeId id = tree.node(node).parent; id.valid(); id = tree.node(id).parent, ++distance) {
    const Cell own = there.find(id)->cell;
    if (std::ranges::find(ours, own, &Refresh::own) != ours.end())
      break;  // another node of this level has the same ancestors from here on
    refreshes.push_back({.sequence = request.sequence,
                         .token = tree.node(id).token,
                         .position = tree.node(id).position,
                         .own = own,
                         .cell = request.speculation.target.find(id)->cell,
                         .depth = depth_at(distance)});
  }
  batch.refreshes.insert(batch.refreshes.end(), refreshes.rbegin(), refreshes.rend());
}

void HeadFeed::add_prompt(const Request& request, Residency& there, Batch& batch) const {
  const Row& row = batch.rows.back();
  const auto i = static_cast<size_t>(row.position);
  const Cell cell = cell_of_committed(request, i);
  refresh_committed(request, i, there, batch);
  if (cell.valid()) batch.features.push_back({.row = row.index, .cell = cell, .depth = n_stages_, .last = true});
  there.settled = i + 1;
}

void HeadFeed::add_node(const Request& request, NodeId node, Residency& there, Batch& batch) const {
  refresh_committed(request, there.committed().size(), there, batch);
  const Row& row = batch.rows.back();
  const Speculation& speculation = request.speculation;
  switch (kind_) {
    case HeadKind::kExit:
      batch.features.push_back({.row = row.index, .cell = speculation.target.find(node)->cell, .last = true});
      break;
    case HeadKind::kSpd:
      refresh_ancestors(request, node, there, batch);
      if (timing_ > 0)
        batch.features.push_back({.row = row.index, .cell = speculation.target.find(node)->cell, .depth = timing_});
      break;
    default:  // EAGLE, a further layer: the token before the root has been verified
      if (node == speculation.tree.root().id && !speculation.target.committed().empty())
        batch.features.push_back({.row = row.index, .cell = speculation.target.committed().back()});
  }
}

}  // namespace sluice

#include "engine/batch_writer.h"

#include <set>
#include <utility>

namespace sluice {

namespace {

void add_prompt_row(Lane& lane, Request& request, Batch& batch) {
  Residency& there = request.residency(lane.model());
  const auto committed = there.committed();
  Row& row = batch.rows.back();
  row.kind = Row::Kind::kPrompt;
  row.position = static_cast<int32_t>(committed.size());
  row.token = request.tokens[committed.size()];
  row.parent = committed.empty() ? Cell() : committed.back();
  row.cell = lane.enter_prompt(request);
  if (lane.model() == kTarget) request.note_committed(batch.id);
  if (lane.head()) lane.head()->add_prompt(request, there, batch);
}

void add_node_row(Lane& lane, Request& request, NodeId id, Batch& batch) {
  Residency& there = request.residency(lane.model());
  Row& row = batch.rows.back();
  const auto& node = request.speculation.tree.node(id);
  row.token = node.token;
  row.position = node.position;
  if (node.parent.valid()) {
    const Resident* parent = there.find(node.parent);
    SLUICE_CHECK(parent != nullptr, "parents enter before their children");
    row.parent = parent->cell;
    request.stats.drafted += lane.model() == kTarget;
  } else if (!there.committed().empty()) {
    row.parent = there.committed().back();
  }
  row.cell = lane.enter_node(request, id, batch.id, row.index);
  if (lane.model() == kTarget && node.draws) {
    batch.draws.push_back(*node.draws);
    batch.draws.back().row = row.index;
  }
  if (lane.head()) lane.head()->add_node(request, id, there, batch);
}

}  // namespace

Batch write_batch(Lane& lane, BatchId id, std::span<const Planned> plan) {
  Batch batch;
  batch.id = id;
  batch.updates = lane.tell(plan);
  batch.rows.reserve(plan.size());
  for (const Planned& planned : plan) {
    Request& request = *planned.request;
    batch.rows.push_back({.sequence = request.sequence,
                          .index = static_cast<uint16_t>(batch.rows.size()),
                          .tapped = lane.model() == kTarget && request.asks_head()});
    if (planned.node.valid())
      add_node_row(lane, request, planned.node, batch);
    else
      add_prompt_row(lane, request, batch);
  }
  return batch;
}

Amendment tell_children(std::span<const Planned> plan, const Lane& target, Batch& batch) {
  std::set<std::pair<const Request*, NodeId>> parents;
  for (const Planned& planned : plan) {
    if (!planned.node.valid() || !is_lossy(planned.request->spec.sampling.rule)) continue;
    if (const NodeId parent = planned.request->speculation.tree.node(planned.node).parent; parent.valid())
      parents.emplace(planned.request, parent);
  }
  Amendment late;
  for (const auto& [request, parent] : parents) {
    const Residency& there = request->residency(kTarget);
    const Resident& resident = *there.find(parent);
    Draws children{.row = resident.row};
    const TokenTree& tree = request->speculation.tree;
    for (const NodeId child : tree.children(parent))
      if (there.entered(child)) children.q.push_back({tree.node(child).token, tree.node(child).probability});
    if (resident.batch == batch.id)
      batch.draws.push_back(std::move(children));
    else if (target.traffic().holds(resident.batch))
      late.late_draws.push_back({resident.batch, std::move(children)});
  }
  return late;
}

}  // namespace sluice

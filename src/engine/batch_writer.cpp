#include "engine/batch_writer.h"

namespace sluice {

namespace {

void add_prompt_row(Lane& lane, Request& request, Batch& batch) {
  Residency& there = request.residency(lane.model);
  Row& row = batch.rows.back();
  row.kind = Row::Kind::kPrompt;
  row.position = static_cast<int32_t>(there.committed.size());
  row.token = request.tokens[there.committed.size()];
  row.parent = there.committed.empty() ? Cell() : there.committed.back();
  there.committed.push_back(row.cell);
  if (lane.model == kTarget) request.note_committed(batch.id);
  if (lane.head) lane.head->add_prompt(request, there, batch);
}

void add_node_row(Lane& lane, Request& request, NodeId id, Batch& batch) {
  Residency& there = request.residency(lane.model);
  Row& row = batch.rows.back();
  const auto& node = request.speculation.tree.node(id);
  row.token = node.token;
  row.position = node.position;
  if (node.parent.valid()) {
    const Resident* parent = there.find(node.parent);
    SLUICE_CHECK(parent != nullptr, "parents enter before their children");
    row.parent = parent->cell;
    request.stats.drafted += lane.model == kTarget;
  } else if (!there.committed.empty()) {
    row.parent = there.committed.back();
  }
  there.enter(id, {row.cell, batch.id, row.index});
  if (lane.model == kTarget && node.draws) {
    batch.draws.push_back(*node.draws);
    batch.draws.back().row = row.index;
  }
  if (lane.head) lane.head->add_node(request, id, there, batch);
}

}  // namespace

Batch write_batch(Lane& lane, BatchId id, std::span<const Planned> plan) {
  Batch batch;
  batch.id = id;
  for (const Planned& planned : plan) lane.news.need(planned.request->sequence);
  batch.updates = lane.news.take();
  for (const Planned& planned : plan) {
    Request& request = *planned.request;
    batch.rows.push_back({.sequence = request.sequence,
                          .cell = lane.cells.take(request.sequence),
                          .index = static_cast<uint16_t>(batch.rows.size()),
                          .tapped = lane.model == kTarget && request.asks_head()});
    if (planned.node.valid())
      add_node_row(lane, request, planned.node, batch);
    else
      add_prompt_row(lane, request, batch);
  }
  return batch;
}

}  // namespace sluice

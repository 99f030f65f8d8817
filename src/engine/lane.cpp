#include "engine/lane.h"

#include <algorithm>
#include <utility>

namespace sluice {

Room Lane::room(bool prompts, double now) const {
  const auto entry = traffic_.next_entry(prompts);
  return {.idle = entry && *entry <= now,
          .next_entry = entry,
          .free_cells = cells_.available(),
          .spare_cells = cells_.available() - std::min(cells_.available(), promised_),
          .stages = traffic_.stages().size(),
          .under_way = traffic_.under_way().size(),
          .widest_alive = traffic_.widest_alive(),
          .times = &traffic_.times(),
          .prompt_times = &traffic_.prompt_times(),
          .knows_times = traffic_.knows_times(),
          .head = head(),
          .shares = shares_.has_value()};
}

// A head computes again what has not settled, in its cells: those are not others' too.
size_t Lane::can_share(const Request& from) const {
  const Residency& there = this->there(from);
  const auto committed = there.committed();
  if (committed.empty() || cells_.holders(committed.front()) >= kMostHolders) return 0;
  const size_t known = news_.known(from.sequence, committed.size());
  return head_ ? std::min(known, there.settled) : known;
}

// What waits to be told is not folded yet.
size_t Lane::can_go_on(const Request& from, size_t kept) const {
  if (cut_back_ && kept + *cut_back_ < there(from).reached) return 0;
  if (!folding_) return kept;
  const size_t known = news_.known(from.sequence, there(from).committed().size());
  const size_t checkpoint = there(from).checkpoint_within(known);
  return kept >= known ? kept : kept >= checkpoint ? checkpoint : 0;
}

// Before the end, since a template may begin an answer otherwise than it shows it later.
int32_t Lane::plan_checkpoint(Request& request, size_t kept) {
  if (!folding_ || request.tokens.size() < kept + folding_->worth_a_checkpoint) return 0;
  const size_t at = request.tokens.size() - folding_->behind_checkpoint;
  there(request).next_checkpoint = at;
  return static_cast<int32_t>(at);
}

void Lane::fork(const Request& from, Request& request, size_t length) {
  if (length == 0) return open(request);
  ++n_sequences_;
  for (const Cell cell : there(from).committed().first(length)) {
    cells_.share(cell);
    there(request).commit(cell);
  }
  there(request).settled = std::min(length, there(from).settled);
  there(request).reached = there(from).reached;
  news_.fork(request.sequence, from.sequence, length, request.spec.sampling, plan_checkpoint(request, length));
}

size_t Lane::shared_behind(const Request& request, size_t kept) const {
  if (cells_.shared() == 0) return 0;
  const auto cut = there(request).committed().subspan(kept);
  return static_cast<size_t>(
      std::count_if(cut.begin(), cut.end(), [this](Cell cell) { return cells_.holders(cell) > 1; }));
}

void Lane::continue_from(Request& previous, Request& request, size_t kept) {
  Residency& old = there(previous);
  old.keep_checkpoint(news_.known(request.sequence, old.committed().size()));
  for (const Cell cell : old.committed().subspan(kept)) cells_.give_back(request.sequence, cell);
  old.cut(kept);
  old.settled = std::min(kept, old.settled);
  there(request) = std::exchange(old, {});
  news_.truncate(request.sequence, kept, request.spec.sampling, plan_checkpoint(request, kept));
}

void Lane::close(Request& request) {
  for (const Cell cell : there(request).committed()) cells_.give_back(request.sequence, cell);
  there(request) = {};
  --n_sequences_;
  cells_.close(request.sequence);
  news_.close(request.sequence);
}

// The cell that was given back last is the first to be taken.
void Lane::interrupt(Request& request) {
  const auto committed = there(request).committed();
  for (auto cell = committed.rbegin(); cell != committed.rend(); ++cell) cells_.give_back(request.sequence, *cell);
  there(request) = {};
  --n_sequences_;
  news_.close(request.sequence);
}

std::vector<PathUpdate> Lane::tell(std::span<const Planned> plan) {
  for (const Planned& planned : plan) news_.need(planned.request->sequence);
  return news_.take();
}

Cell Lane::enter_prompt(Request& request) {
  const Cell cell = cells_.take(request.sequence);
  there(request).commit(cell);
  return cell;
}

Cell Lane::enter_node(Request& request, NodeId node, BatchId batch, uint16_t row) {
  const Cell cell = cells_.take(request.sequence);
  there(request).enter(node, {cell, batch, row});
  return cell;
}

void Lane::commit(Request& request, NodeId node) {
  const Resident* resident = there(request).find(node);
  if (resident == nullptr) return;
  there(request).commit(resident->cell);
  news_.commit(request.sequence, resident->cell);
  there(request).leave(node);
}

void Lane::prune(Request& request, std::span<const NodeId> nodes) {
  BatchId entered;
  Traffic::Flight* flight = nullptr;  // with which
  for (const NodeId node : nodes) {
    const Resident* resident = there(request).find(node);
    if (resident == nullptr) continue;
    if (resident->batch != entered) flight = traffic_.flight(entered = resident->batch);
    if (flight != nullptr) {
      --flight->alive;
      dead_.dead.push_back({resident->batch, resident->row});
    }
    cells_.give_back(request.sequence, resident->cell);
    there(request).leave(node);
  }
}

void Lane::forget_nodes(Request& request) {
  for (const Cell cell : there(request).cells()) cells_.give_back(request.sequence, cell);
  there(request).clear();
}

void Lane::count_promised(Request& request) {
  const size_t now = request.cells_to_come(model_);
  promised_ += now;
  promised_ -= std::exchange(request.promised[static_cast<size_t>(model_.value)], now);
}

}  // namespace sluice

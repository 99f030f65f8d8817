// What goes out: the next batch of every model that is free.
#include <algorithm>
#include <set>

#include "engine/engine.h"

namespace sluice {

namespace {

// The part of a pass for which it pays to wait for news, and how much later than expected they may come: what enters
// without them costs a step.
constexpr double kSoon = 0.05, kLate = 0.02;

}  // namespace

// When stages take equal times, the verdict on the root comes just after the first stage has fallen free, later by a
// message, and so does the answer of a draft model that takes as long. What enters then had better know them: after a
// verdict most of the nodes that would have entered may be dead, and an answer names likelier ones. If news is due
// within a small part of a step, this is when.
std::optional<double> Engine::news_due() const {
  const Lane& lane = target();
  const double step = lane.transit / static_cast<double>(lane.stages.size()), now = executor_->now();
  const auto soon = [&](double due) { return due + kLate * step > now && due - now < kSoon * step; };
  const auto has_root_in = [&](BatchId batch) {
    return std::any_of(running_.begin(), running_.end(), [&](const Request* request) {
      const Resident* root = request->speculation.target.find(request->speculation.tree.root().id);
      return root != nullptr && root->batch == batch && request->method.traits.speculates;
    });
  };
  std::optional<double> first;
  for (const auto& [batch, flight] : lane.in_flight) {
    const double due = flight.submitted + lane.transit;
    if (!soon(due) || !has_root_in(batch)) continue;
    first = due;
    break;
  }
  for (const Lane& draft : std::span(lanes_).subspan(1))
    if (const auto due = draft.due(); due && soon(*due)) first = std::min(first.value_or(*due), *due);
  if (first) *first += kLate * step;
  return first;
}

// What enters one model may be what another was waiting for: a draft model goes on below a tree when that has entered.
void Engine::feed() {
  while (feed_idle()) {
  }
}

// Gives every model whose first stage is free its next batch; whether there was one.
bool Engine::feed_idle() {
  if (running_.empty()) return false;
  std::vector<Room> rooms;
  const auto has_prompt = [](const Request* request) { return request->prompt_rows_left(kTarget) > 0; };
  const bool prompts = std::any_of(running_.begin(), running_.end(), has_prompt);
  for (const Lane& lane : lanes_) rooms.push_back(lane.room(prompts));
  const auto idle = [](const Room& room) { return room.idle; };
  if (std::none_of(rooms.begin(), rooms.end(), idle)) return false;
  const double now = executor_->now();
  const auto news = news_due();
  for (size_t m = 0; m < lanes_.size(); ++m) {
    const Lane& lane = lanes_[m];
    // A draft model's own answer comes just after it has fallen free, and its next questions depend on it.
    const bool answers = lane.model != kTarget && lane.due() && *lane.due() - now < kSoon * lane.transit;
    if (rooms[m].idle && !answers && news) executor_->wake_at(*news);
    rooms[m].idle = rooms[m].idle && !answers && !news;
  }
  if (std::none_of(rooms.begin(), rooms.end(), idle)) return false;
  Plans composed = scheduler_.compose(running_, rooms);
  scheduler_.took(composed, executor_->now() - now);
  for (const auto& [request, why] : composed.broken) fail(*request, why);
  if (!composed.broken.empty()) return true;  // the others are asked again
  auto& plans = composed.models;
  // A method may wait for a source that has no room to answer: then the roots go on alone, and their verdicts make
  // room.
  const auto quiet = [this](const Lane& lane) { return is_quiet(lane); };
  const auto empty = [](const std::vector<Planned>& plan) { return plan.empty(); };
  if (std::all_of(lanes_.begin(), lanes_.end(), quiet) && std::all_of(plans.begin(), plans.end(), empty))
    plans[0] = scheduler_.roots_alone(running_, rooms[0]);
  bool sent = false;
  for (size_t m = 0; m < lanes_.size(); ++m) {
    if (plans[m].empty()) continue;
    send(lanes_[m], plans[m]);
    sent = true;
  }
  return sent;
}

void Engine::send(Lane& lane, const std::vector<Planned>& plan) {
  Batch batch;
  batch.id = BatchId(next_batch_++);
  for (const Planned& planned : plan) lane.news.need(planned.request->sequence);
  batch.updates = lane.news.take();
  if (options_.trace)
    trace_.batches.push_back({.id = batch.id, .model = lane.model, .submitted = executor_->now(), .rows = {}});
  Lane::Flight& flight = lane.in_flight[batch.id];
  flight.submitted = executor_->now();
  for (const Planned& planned : plan) {
    add_row(lane, planned, batch);
    flight.prompts = flight.prompts || !planned.node.valid();
    if (lane.model != kTarget) flight.rows.push_back({planned.request->id, planned.node});
  }
  for (size_t i = 0; i < plan.size(); ++i)
    if (i + 1 == plan.size() || plan[i + 1].request != plan[i].request) count_promised(*plan[i].request);
  if (lane.model == kTarget) tell_children(plan, batch);
  n_batches_ += lane.model == kTarget;
  ++lane.first_stage_load;
  executor_->submit(lane.model, std::move(batch));
}

// Under a lossy rule the last worker chooses among the children that have entered: it learns of those of this batch.
void Engine::tell_children(const std::vector<Planned>& plan, Batch& batch) {
  std::set<std::pair<Request*, NodeId>> parents;
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
    for (const auto& node : request->speculation.tree.nodes())
      if (node.parent == parent && there.entered(node.id)) children.q.push_back({node.token, node.probability});
    if (resident.batch == batch.id)
      batch.draws.push_back(std::move(children));
    else if (target().in_flight.contains(resident.batch))
      late.late_draws.push_back({resident.batch, std::move(children)});
  }
  if (!late.late_draws.empty()) executor_->amend(kTarget, std::move(late));
}

// Nothing is under way, no report of a stage either, and no state that a head waits for.
bool Engine::is_quiet(const Lane& lane) const {
  const auto waits = [&](const Request* request) {
    return request->last_verified.valid() && request->source_of(lane.model) && !lane.head->knows_committed(*request);
  };
  return lane.in_flight.empty() && lane.first_stage_load == 0 &&
         !(lane.head && std::any_of(running_.begin(), running_.end(), waits));
}

bool Engine::asks_head(const Request& request) const {
  return std::any_of(lanes_.begin(), lanes_.end(),
                     [&](const Lane& lane) { return lane.head && request.source_of(lane.model); });
}

void Engine::add_row(Lane& lane, const Planned& planned, Batch& batch) {
  Request& request = *planned.request;
  Residency& there = request.residency(lane.model);
  const auto index = static_cast<uint16_t>(batch.rows.size());
  Row& row = batch.rows.emplace_back(
      Row{.sequence = request.sequence, .cell = lane.cells.take(request.sequence), .index = index, .tapped = false});
  if (lane.model == kTarget) row.tapped = asks_head(request);
  TraceRow traced{.node = planned.node, .request = request.id.value};
  if (!planned.node.valid()) {
    row.kind = Row::Kind::kPrompt;
    row.position = static_cast<int32_t>(there.committed.size());
    row.token = request.tokens[there.committed.size()];
    row.parent = there.committed.empty() ? Cell() : there.committed.back();
    there.committed.push_back(row.cell);
    if (lane.model == kTarget) request.note_committed(batch.id);
    traced.fate = Fate::kPrompt;
    if (lane.head) lane.head->add_prompt(request, there, batch);
  } else {
    const auto& node = request.speculation.tree.node(planned.node);
    const bool is_root = !node.parent.valid();
    row.token = node.token;
    row.position = node.position;
    if (is_root) {
      if (!there.committed.empty()) row.parent = there.committed.back();
    } else {
      const Resident* parent = there.find(node.parent);
      SLUICE_CHECK(parent != nullptr, "parents enter before their children");
      row.parent = parent->cell;
      if (parent->batch == batch.id) traced.parent_row = parent->row;
      request.stats.drafted += lane.model == kTarget;
    }
    traced.probability = node.probability;
    traced.log_path = node.log_path;
    there.enter(node.id, {row.cell, batch.id, index});
    if (lane.model == kTarget && node.draws) {
      batch.draws.push_back(*node.draws);
      batch.draws.back().row = index;
    }
    if (lane.model != kTarget) traced.fate = Fate::kDrafted;
    if (lane.head) lane.head->add_node(request, node.id, there, batch);
  }
  if (options_.trace) {
    traced.token = row.token;
    traced.position = row.position;
    traced.text = tokenizer_->piece(row.token, true);
    trace_.batches.back().rows.push_back(std::move(traced));
  }
}

}  // namespace sluice

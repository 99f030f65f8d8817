// What goes out: the next batch of every model that is free.
#include <algorithm>

#include "engine/batch_writer.h"
#include "engine/engine.h"
#include "engine/policy.h"

namespace sluice {

namespace {

// --- Whether a model that is free had better wait for news. ---

// When stages take equal times, the verdict on the root comes just after the first stage has fallen free, later by a
// message, and so does the answer of a draft model that takes as long. What enters then had better know them: after a
// verdict most of the nodes that would have entered may be dead, and an answer names likelier ones. If news is due
// within a small part of a step, this is when, on the clock that says it is `now`.
std::optional<double> news_due(std::span<const Lane> lanes, std::span<Request* const> running, double now) {
  const Traffic& traffic = lanes.front().traffic();
  const double step = traffic.step();
  const auto soon = [&](double due) { return due + policy::kLate * step > now && due - now < policy::kSoon * step; };
  const auto has_root_in = [&](BatchId batch) {
    return std::any_of(running.begin(), running.end(), [&](const Request* request) {
      const Resident* root = request->speculation.target.find(request->speculation.tree.root().id);
      return root != nullptr && root->batch == batch && request->method.traits.speculates;
    });
  };
  std::optional<double> first;
  for (const Traffic::Flight& flight : traffic.under_way()) {
    const double due = traffic.due(flight);
    if (!soon(due) || !has_root_in(flight.batch)) continue;
    first = due;
    break;
  }
  for (const Lane& draft : lanes.subspan(1))
    if (const auto due = draft.traffic().next_due(); due && soon(*due)) first = std::min(first.value_or(*due), *due);
  if (first) *first += policy::kLate * step;
  return first;
}

// A draft model's own answer comes just after it has fallen free, and its next questions depend on it: whether it is
// due.
bool answer_due(const Lane& lane, double now) {
  const auto due = lane.traffic().next_due();
  return lane.model() != kTarget && due && *due - now < policy::kSoon * lane.traffic().transit();
}

// Nothing is under way, no report of the first stage either, and no state that a head waits for.
bool is_quiet(const Lane& lane, std::span<Request* const> running) {
  const auto waits = [&](const Request* request) {
    return request->last_verified.valid() && request->source_of(lane.model()) &&
           !lane.head()->knows_committed(*request);
  };
  return lane.traffic().is_quiet() && !(lane.head() && std::any_of(running.begin(), running.end(), waits));
}

}  // namespace

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
  const double now = executor_->now();
  for (const Lane& lane : lanes_) rooms.push_back(lane.room(prompts, now));
  for (const Room& room : rooms)
    if (room.next_entry && *room.next_entry > now) executor_->wake_at(*room.next_entry);
  const auto idle = [](const Room& room) { return room.idle; };
  // What enters while a draft model has the first stage's device would wait for it: it had better know the answer.
  const auto has_device = [](const Lane& lane) {
    return lane.shares_first_stage() && !lane.traffic().under_way().empty();
  };
  rooms[0].idle = rooms[0].idle && std::none_of(lanes_.begin(), lanes_.end(), has_device);
  if (std::none_of(rooms.begin(), rooms.end(), idle)) return false;
  const auto news = news_due(lanes_, running_, now);
  for (size_t m = 0; m < lanes_.size(); ++m) {
    const bool answers = answer_due(lanes_[m], now);
    if (rooms[m].idle && !answers && news) executor_->wake_at(*news);
    rooms[m].idle = rooms[m].idle && !answers && !news;
  }
  if (std::none_of(rooms.begin(), rooms.end(), idle)) return false;
  const std::vector<Request*> turns = scheduler_.in_turn(running_);
  const Price price(turns, rooms[0]);
  const Proposals proposals = drafting_.ask(turns, rooms, scheduler_.bar(turns, rooms[0], price));
  for (const auto& [request, why] : proposals.broken) fail(*request, why);
  if (!proposals.broken.empty()) return true;  // the others are asked again
  auto [plans, saved] = scheduler_.compose(proposals, turns, rooms, price);
  drafting_.chosen(proposals, plans[0], saved, executor_->now() - now);
  // A method may wait for a source that has no room to answer: then the roots go on alone, and their verdicts make
  // room.
  const auto quiet = [this](const Lane& lane) { return is_quiet(lane, running_); };
  const auto empty = [](const std::vector<Planned>& plan) { return plan.empty(); };
  if (std::all_of(lanes_.begin(), lanes_.end(), quiet) && std::all_of(plans.begin(), plans.end(), empty))
    plans[0] = scheduler_.roots_alone(turns, rooms[0], price);
  // Likewise what would enter together with a question: its answer is worth the wait.
  for (size_t m = 1; m < lanes_.size(); ++m)
    if (lanes_[m].shares_first_stage() && !plans[m].empty() && !prompts) plans[0].clear();
  bool sent = false;
  for (size_t m = 0; m < lanes_.size(); ++m) {
    if (plans[m].empty()) continue;
    send(lanes_[m], plans[m]);
    sent = true;
  }
  return sent;
}

void Engine::send(Lane& lane, const std::vector<Planned>& plan) {
  Batch batch = write_batch(lane, BatchId(next_batch_++), plan);
  const double now = executor_->now();
  recorder_.submitted(batch, lane.model(), plan, now);
  Traffic::Flight flight{.batch = batch.id, .submitted = now, .n_rows = static_cast<int32_t>(plan.size())};
  for (const Planned& planned : plan) {
    flight.prompts = flight.prompts || !planned.node.valid();
    flight.alive += planned.node.valid();
    if (lane.model() != kTarget) flight.rows.push_back({planned.request->id, planned.node});
  }
  for (size_t i = 0; i < plan.size(); ++i)
    if (i + 1 == plan.size() || plan[i + 1].request != plan[i].request) admission_.count_promised(*plan[i].request);
  if (lane.model() == kTarget) {
    Amendment late = tell_children(plan, lane, batch);
    if (!late.late_draws.empty()) executor_->amend(kTarget, std::move(late));
    ++n_batches_;
  }
  lane.traffic().submitted(std::move(flight));
  executor_->submit(lane.model(), std::move(batch));
}

}  // namespace sluice

// What goes out: the next batch of every model that is free.
#include <algorithm>

#include "engine/batch_writer.h"
#include "engine/children.h"
#include "engine/engine.h"
#include "engine/patience.h"

namespace sluice {

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
  const Proposals proposals = drafting_.ask(turns, rooms, scheduler_.floor(turns, rooms[0], price));
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

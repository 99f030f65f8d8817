// How a generation is opened: every host is reached, told what its stage is, and waited for.
#include <algorithm>
#include <chrono>
#include <future>
#include <nlohmann/json.hpp>
#include <utility>

#include "transport/emulated_link.h"
#include "transport/generation.h"

namespace sluice {

namespace {

constexpr std::chrono::milliseconds kLastWord{250};  // for what a host said last to come by another connection

tl::unexpected<Loss> lost(size_t seat, const Error& error, bool in_set_up = false) {
  return tl::unexpected<Loss>(loss_of(seat, error, in_set_up));
}

}  // namespace

tl::expected<void, Loss> Generation::open(double connect) {
  if (auto reached = reach_all(connect); !reached) return reached;
  auto ready = make_ready(connect);
  if (!ready) ready = tl::unexpected<Loss>(first_loss(ready.error()));
  return ready;
}

// Who refuses a connection because it has given up has said why by another, or is about to.
Loss Generation::first_loss(const Loss& known) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kLastWord, [this] { return loss_ || closed_; });
  return loss_.value_or(known);
}

tl::expected<void, Loss> Generation::make_ready(double connect) {
  if (auto told = set_up_all(connect); !told) return told;
  if (auto ready = wait_for_all(connect); !ready) return ready;
  if (auto alike = check_alike(); !alike) return alike;
  if (auto relayed = lay_tap_relays(connect); !relayed) return relayed;
  for (const size_t seat : {size_t{0}, n_stages()}) {
    if (seat == hosts_.size()) continue;  // there is no head
    auto way = reach(seat, Hello::Role::kBatches, connect);
    if (!way) return tl::unexpected<Loss>(way.error());
    hear(seat, **way);
    batches_.push_back(std::move(*way));
  }
  lay_ways();
  return {};
}

tl::expected<std::shared_ptr<Connection>, Loss> Generation::reach(size_t stage, Hello::Role role, double connect) {
  auto connection = network_.connect(hosts_[stage], hello(stage, role), connection_options(connect));
  if (!connection) return lost(stage, connection.error());
  return std::move(*connection);
}

// What a stage says by it is the stage's.
void Generation::hear(size_t stage, Connection& connection) {
  connection.listen({.frame =
                         [weak = weak_from_this(), stage](Frame frame) {
                           if (const auto self = weak.lock()) self->take(stage, std::move(frame));
                         },
                     .end =
                         [weak = weak_from_this(), stage](const Error& error) {
                           if (const auto self = weak.lock()) self->fail(stage, error);
                         }});
}

// A host reaches itself.
bool Generation::needs_relay(size_t stage, size_t to) const {
  if (plan_.job) return false;
  const HostAddress &host = hosts_[stage], &other = hosts_[to];
  const bool known = unreachable_.contains({host.text(), other.text()});
  return known || ((host.relay || other.relay) && host.text() != other.text());
}

// Comes for what these stages send, and brings it to those behind them.
tl::expected<void, Loss> Generation::lay_relays(const std::vector<size_t>& stages, double connect) {
  using Reached = tl::expected<std::shared_ptr<Connection>, Loss>;
  std::vector<std::future<std::pair<Reached, Reached>>> attempts;
  for (const size_t s : stages)
    attempts.push_back(std::async(std::launch::async, [this, s, connect] {
      auto from = reach(s, Hello::Role::kRelay, connect);
      return std::pair(std::move(from), reach(s + 1, Hello::Role::kBatches, connect));
    }));
  const PipelineLinks links = this->links();
  tl::expected<void, Loss> reached;
  for (size_t i = 0; i < stages.size(); ++i) {
    const size_t s = stages[i];
    auto [from, to] = attempts[i].get();
    for (const Reached* end : {&from, &to})
      if (!*end && reached) reached = tl::unexpected<Loss>(end->error());
    if (!reached) continue;
    const auto relay = std::make_shared<Relay>(*from, over_link(*to, links.to_stages[s + 1]));
    {
      const std::lock_guard lock(mutex_);
      relays_[s] = relay;
    }
    hear(s + 1, **to);
    (*from)->listen({.frame =
                         [weak = std::weak_ptr(relay)](Frame frame) {
                           if (const auto there = weak.lock()) there->push(std::move(frame));
                         },
                     .end = [](const Error&) {}});  // the stage, which hears it too, tells why by its control
  }
  return reached;
}

// Comes for what stages tap that can't send it to the head themselves.
tl::expected<void, Loss> Generation::lay_tap_relays(double connect) {
  std::vector<size_t> stages;
  {
    const std::lock_guard lock(mutex_);
    for (size_t s = 0; s < n_stages(); ++s)
      if (taps_come_here(s)) stages.push_back(s);
  }
  for (const size_t s : stages) {
    auto head = reach(n_stages(), Hello::Role::kTaps, connect);
    if (!head) return tl::unexpected<Loss>(head.error());
    hear(n_stages(), **head);
    const std::lock_guard lock(mutex_);
    tap_relays_[s] = std::make_shared<Relay>(control_[s], over_link(*head, links_of_head().edges.front()));
  }
  return {};
}

PipelineLinks Generation::links() const {
  return plan_.cost ? PipelineLinks(*plan_.cost, plan_.id, n_stages()) : PipelineLinks(n_stages());
}
PipelineLinks Generation::links_of_head() const {
  const auto& cost = plan_.head->cost;
  return cost ? PipelineLinks(*cost, plan_.head->id, 1) : PipelineLinks(1);
}

void Generation::lay_ways() {
  const PipelineLinks links = this->links();
  batches_.front() = over_link(batches_.front(), links.edges.front());
  for (size_t s = 0; s < n_stages(); ++s) amendments_.push_back(over_link(control_[s], links.to_stages[s]));
  if (!plan_.head) return;
  const PipelineLinks of_head = links_of_head();
  batches_.back() = over_link(batches_.back(), of_head.edges.front());
  amendments_.push_back(over_link(control_.back(), of_head.to_stages.front()));
}

Hello Generation::hello(size_t seat, Hello::Role role) const {
  return {.epoch = epoch_, .model = model_of(seat), .stage = recipe(seat).stage, .role = role};
}

ConnectionOptions Generation::connection_options(double connect) const {
  return {.patience = plan_.patience, .connect = connect};
}

// All are there before one is asked to hold anything.
tl::expected<void, Loss> Generation::reach_all(double connect) {
  std::vector<std::future<Result<std::shared_ptr<Connection>>>> attempts;
  for (size_t s = 0; s < hosts_.size(); ++s)
    attempts.push_back(std::async(std::launch::async, [this, s, connect] {
      return network_.connect(hosts_[s], hello(s, Hello::Role::kControl), connection_options(connect));
    }));
  tl::expected<void, Loss> reached;
  for (size_t s = 0; s < attempts.size(); ++s) {
    auto control = attempts[s].get();
    if (!control && reached) reached = lost(s, control.error());
    control_.push_back(control ? std::move(*control) : nullptr);
  }
  return reached;
}

tl::expected<void, Loss> Generation::set_up_all(double connect) {
  std::vector<size_t> relayed;
  for (size_t seat = 0; seat < control_.size(); ++seat) {
    hear(seat, *control_[seat]);
    StageSetup setup = is_head(seat) ? setup_of_head() : setup_of_stage(seat);
    setup.connect = connect;
    if (setup.relay) relayed.push_back(seat);
    if (const Status sent = control_[seat]->send(setup, Priority::kUrgent); !sent) fail(seat, sent.error());
  }
  return lay_relays(relayed, connect);
}

StageSetup Generation::setup_of_stage(size_t s) const {
  const bool is_last = s + 1 == n_stages();
  StageSetup setup{.model = plan_.id,
                   .recipe = plan_.recipes[s],
                   .next = is_last ? "" : hosts_[s + 1].text(),
                   .patience = plan_.patience,
                   .pace = plan_.cost ? plan_.cost->profile().to_json().dump() : "",
                   .cuts = plan_.cuts,
                   .memo = plan_.recipes[s].last ? plan_.memo : "",
                   .replaces = former_.has_value(),
                   .relay = !is_last && needs_relay(s, s + 1)};
  if (!feeds_head(s) || needs_relay(s, n_stages())) return setup;
  setup.taps_to = hosts_.back().text();
  setup.head = plan_.head->id;
  return setup;
}

StageSetup Generation::setup_of_head() const {
  const RemotePlan::Head& head = *plan_.head;
  return {.model = head.id,
          .recipe = head.recipe,
          .next = {},
          .patience = plan_.patience,
          .pace = head.cost ? head.cost->profile().to_json().dump() : "",
          .cuts = head.cuts,
          .replaces = former_.has_value()};
}

tl::expected<void, Loss> Generation::wait_for_all(double connect) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] {
      return loss_ || closed_ || !cut_off_.empty() ||
             std::ranges::all_of(ready_, [](const auto& ready) { return ready.has_value(); });
    });
    if (loss_) return tl::unexpected<Loss>(*loss_);
    if (closed_) return lost(0, {ErrorKind::kRuntime, "the program ended"});
    if (cut_off_.empty()) break;
    const auto cut_off = std::exchange(cut_off_, {});
    lock.unlock();
    std::vector<size_t> stages;
    for (const auto& [s, why] : cut_off) {
      plan_.say(control_[s]->peer() + " can't reach the next stage (" + why.message +
                "): what it sends there goes by way of this process");
      unreachable_.emplace(hosts_[s].text(), hosts_[s + 1].text());
      stages.push_back(s);
    }
    if (auto relayed = lay_relays(stages, connect); !relayed) return relayed;
    lock.lock();
  }
  note_cut_off();
  uint8_t weakest = 0;
  for (size_t s = 0; s < n_stages(); ++s) {  // a head's bits are nobody's text
    weakest = std::max(weakest, ready_[s]->exactness);
    if (former_ && static_cast<uint8_t>(former_->exactness) < ready_[s]->exactness)
      return lost(s, {ErrorKind::kRuntime, control_[s]->peer() + ": its bits are of a weaker class than those before"},
                  /*in_set_up=*/true);
  }
  bits_ = {static_cast<Exactness>(weakest), ready_[0]->instructions};
  return {};
}

// Those that can't reach the head. Under the mutex.
void Generation::note_cut_off() {
  for (size_t s = 0; s < n_stages(); ++s) {
    if (!feeds_head(s) || ready_[s]->cut_off.empty()) continue;
    plan_.say(control_[s]->peer() + " can't reach the head (" + ready_[s]->cut_off +
              "): what the head reads goes by way of this process");
    unreachable_.emplace(hosts_[s].text(), hosts_.back().text());
  }
}

// ggml's kernels give other bits on another processor.
tl::expected<void, Loss> Generation::check_alike() const {
  if (plan_.alike.empty()) return {};
  const std::string& wanted = former_ ? former_->instructions : bits_.instructions;
  const std::string whose = former_ ? "those before" : control_[0]->peer();
  for (size_t s = 0; s < n_stages(); ++s)
    if (ready_[s]->instructions != wanted)
      return lost(s,
                  {ErrorKind::kRuntime,
                   control_[s]->peer() + " computes by other instructions (" + ready_[s]->instructions + ") than " +
                       whose + " (" + wanted + "), and weights of type " + plan_.alike +
                       " have the same bits on like processors only: take like hosts, or a file of other types"},
                  /*in_set_up=*/true);
  return {};
}

}  // namespace sluice

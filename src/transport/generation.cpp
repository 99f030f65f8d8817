#include "transport/generation.h"

#include <openssl/rand.h>

#include <algorithm>
#include <future>
#include <nlohmann/json.hpp>
#include <utility>

#include "transport/emulated_link.h"
#include "wire/codec.h"

namespace sluice {

namespace {

// Weight of the newest pass in what is known of a stage's passes.
constexpr double kNewestPass = 0.125;

// What a user has stopped stays that.
Error error_of(const Error& error) {
  return {error.kind == ErrorKind::kInterrupted ? error.kind : ErrorKind::kRuntime, error.message};
}

tl::unexpected<Loss> loss_of(size_t stage, const Error& error, bool in_set_up = false) {
  return tl::unexpected<Loss>(Loss{error_of(error), stage, in_set_up});
}

}  // namespace

uint64_t random_epoch() {
  uint64_t epoch = 0;
  SLUICE_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&epoch), sizeof epoch) == 1,
               "the system has random numbers");
  return epoch;
}

Generation::Generation(const RemotePlan& plan, std::vector<HostAddress> hosts, Network& network, WeightServer* weights,
                       Unreachable& unreachable, std::optional<Bits> former)
    : plan_(plan),
      hosts_(std::move(hosts)),
      network_(network),
      weights_(weights),
      unreachable_(unreachable),
      former_(std::move(former)),
      epoch_(random_epoch()),
      ready_(plan_.recipes.size()),
      relays_(plan_.recipes.size()),
      arrivals_(plan_.recipes),
      paces_(plan_.recipes.size()) {
  for (const StageRecipe& recipe : plan_.recipes) reports_.emplace_back(plan_.id, recipe, plan_.n_tokens);
}

tl::expected<void, Loss> Generation::open(double connect) {
  if (auto reached = reach_all(connect); !reached) return reached;
  if (auto told = set_up_all(connect); !told) return told;
  if (auto ready = wait_for_all(connect); !ready) return ready;
  if (auto alike = check_alike(); !alike) return alike;
  auto first = reach(0, Hello::Role::kBatches, connect);
  if (!first) return tl::unexpected<Loss>(first.error());
  first_ = std::move(*first);
  hear(0, *first_);
  lay_ways();
  return {};
}

tl::expected<std::shared_ptr<Connection>, Loss> Generation::reach(size_t stage, Hello::Role role, double connect) {
  auto connection = network_.connect(hosts_[stage], hello(stage, role), connection_options(connect));
  if (!connection) return loss_of(stage, connection.error());
  return std::move(*connection);
}

// What a stage says by it is the stage's.
void Generation::hear(size_t stage, Connection& connection) {
  connection.listen({.frame =
                         [weak = weak_from_this(), stage](const Frame& frame) {
                           if (const auto self = weak.lock()) self->take(stage, frame);
                         },
                     .end =
                         [weak = weak_from_this(), stage](const Error& error) {
                           if (const auto self = weak.lock()) self->fail(stage, error);
                         }});
}

// A host reaches itself.
bool Generation::needs_relay(size_t stage) const {
  if (stage + 1 >= hosts_.size() || plan_.job) return false;
  const HostAddress &host = hosts_[stage], &next = hosts_[stage + 1];
  const bool known = unreachable_.contains({host.text(), next.text()});
  return known || ((host.relay || next.relay) && host.text() != next.text());
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
  const size_t n = control_.size();
  const PipelineLinks links = plan_.cost ? PipelineLinks(*plan_.cost, plan_.id, n) : PipelineLinks(n);
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
                     .end =
                         [weak = weak_from_this(), s](const Error& error) {
                           if (const auto self = weak.lock()) self->fail(s, error);
                         }});
  }
  return reached;
}

void Generation::lay_ways() {
  const size_t n = control_.size();
  const PipelineLinks links = plan_.cost ? PipelineLinks(*plan_.cost, plan_.id, n) : PipelineLinks(n);
  batches_ = over_link(first_, links.edges.front());
  for (size_t s = 0; s < n; ++s) amendments_.push_back(over_link(control_[s], links.to_stages[s]));
}

Hello Generation::hello(size_t stage, Hello::Role role) const {
  return {.epoch = epoch_, .stage = StageId(static_cast<int32_t>(stage)), .role = role};
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
    if (!control && reached) reached = loss_of(s, control.error());
    control_.push_back(control ? std::move(*control) : nullptr);
  }
  return reached;
}

tl::expected<void, Loss> Generation::set_up_all(double connect) {
  std::vector<size_t> relayed;
  for (size_t s = 0; s < control_.size(); ++s) {
    hear(s, *control_[s]);
    StageSetup setup{.model = plan_.id,
                     .recipe = plan_.recipes[s],
                     .next = {},
                     .patience = plan_.patience,
                     .pace = plan_.cost ? plan_.cost->profile().to_json().dump() : "",
                     .cuts = plan_.cuts,
                     .memo = plan_.recipes[s].last ? plan_.memo : "",
                     .replaces = former_.has_value(),
                     .relay = needs_relay(s),
                     .connect = connect};
    if (setup.relay) relayed.push_back(s);
    if (s + 1 < control_.size()) setup.next = hosts_[s + 1].text();
    if (const Status sent = control_[s]->send(setup, Priority::kUrgent); !sent) fail(s, sent.error());
  }
  return lay_relays(relayed, connect);
}

tl::expected<void, Loss> Generation::wait_for_all(double connect) {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] {
      return loss_ || closed_ || !cut_off_.empty() ||
             std::ranges::all_of(ready_, [](const auto& ready) { return ready.has_value(); });
    });
    if (loss_) return tl::unexpected<Loss>(*loss_);
    if (closed_) return loss_of(0, {ErrorKind::kRuntime, "the program ended"});
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
  uint8_t weakest = 0;
  for (size_t s = 0; s < ready_.size(); ++s) {
    weakest = std::max(weakest, ready_[s]->exactness);
    if (former_ && static_cast<uint8_t>(former_->exactness) < ready_[s]->exactness)
      return loss_of(s,
                     {ErrorKind::kRuntime, control_[s]->peer() + ": its bits are of a weaker class than those before"},
                     /*in_set_up=*/true);
  }
  bits_ = {static_cast<Exactness>(weakest), ready_[0]->instructions};
  return {};
}

// ggml's kernels give other bits on another processor.
tl::expected<void, Loss> Generation::check_alike() const {
  if (plan_.alike.empty()) return {};
  const std::string& wanted = former_ ? former_->instructions : bits_.instructions;
  const std::string whose = former_ ? "those before" : control_[0]->peer();
  for (size_t s = 0; s < ready_.size(); ++s)
    if (ready_[s]->instructions != wanted)
      return loss_of(s,
                     {ErrorKind::kRuntime,
                      control_[s]->peer() + " computes by other instructions (" + ready_[s]->instructions + ") than " +
                          whose + " (" + wanted + "), and weights of type " + plan_.alike +
                          " have the same bits on like processors only: take like hosts, or a file of other types"},
                     /*in_set_up=*/true);
  return {};
}

void Generation::start(Links& links, std::function<void(const Loss&)> lost) {
  std::unique_lock lock(mutex_);
  if (loss_) {
    const Loss loss = *loss_;
    lock.unlock();
    return lost(loss);
  }
  links_ = &links;
  lost_ = std::move(lost);
}

void Generation::submit(const Batch& batch) {
  {
    const std::lock_guard lock(mutex_);
    for (ReportCheck& reports : reports_) reports.submitted(batch);
    arrivals_.submitted(batch);
    if (!has_work(0)) paces_.front().since = Clock::now();
    ++submitted_;
  }
  Batch stamped = batch;
  stamped.after = sent_.lap();
  if (const Status sent = batches_->send(std::move(stamped), Priority::kBulk); !sent) fail(0, sent.error());
}

void Generation::amend(const Amendment& amendment) {
  for (size_t s = 0; s < amendments_.size(); ++s)
    if (const Status sent = amendments_[s]->send(amendment, Priority::kUrgent); !sent) fail(s, sent.error());
}

// Batches have come to the stage that it has not reported.
bool Generation::has_work(size_t s) const { return (s == 0 ? submitted_ : paces_[s - 1].batches) > paces_[s].batches; }

void Generation::note_pass(size_t s, const StageReport& report) {
  const auto now = Clock::now();
  Pace& pace = paces_[s];
  const double seconds = report.end - report.begin;
  pace.lately = pace.lately > 0.0 ? pace.lately + kNewestPass * (seconds - pace.lately) : seconds;
  pace.since = now;
  if (s + 1 < paces_.size() && !has_work(s + 1)) paces_[s + 1].since = now;
  ++pace.batches;
}

void Generation::look_after() {
  std::optional<size_t> hung;
  double still = 0.0;
  {
    const std::lock_guard lock(mutex_);
    for (size_t s = 0; s < paces_.size() && !hung; ++s) {
      const Pace& pace = paces_[s];
      still = std::chrono::duration<double>(Clock::now() - pace.since).count();
      const double most =
          pace.lately > 0.0 ? plan_.stands_still + RemotePlan::kLongestPass * pace.lately : plan_.first_pass;
      if (has_work(s) && still > most) hung = s;
    }
  }
  if (hung)
    fail(*hung, {ErrorKind::kRuntime, control_[*hung]->peer() + ": it answers, but has computed nothing for " +
                                          std::to_string(static_cast<int64_t>(still)) +
                                          " s: is it out of memory, or stopped in a debugger?"});
}

// Of the network's thread.
void Generation::take(size_t s, const Frame& frame) {
  auto message = decode(frame.bytes());
  if (message)
    if (const auto* failed = std::get_if<WorkerFailed>(&*message)) {
      // Of another host it speaks by its name: of the next one, which batches go to.
      const bool of_next = failed->error.message.starts_with(kHost) && s + 1 < hosts_.size();
      return fail(of_next ? s + 1 : s, said_by(control_[s]->peer(), failed->error), /*in_set_up=*/true);
    }
  const Status taken = message ? std::visit([&](auto& what) { return take(s, what); }, *message)
                               : Status(tl::unexpected<Error>(message.error()));
  if (!taken) fail(s, said_by(control_[s]->peer(), taken.error()), /*in_set_up=*/true);
}

Status Generation::take(size_t s, const StageReady& ready) {
  if (ready.exactness > static_cast<uint8_t>(Exactness::kNone)) return runtime_error("its bits are of no known class");
  const std::lock_guard lock(mutex_);
  ready_[s] = ready;
  changed_.notify_all();
  return {};
}

Status Generation::take(size_t s, const NextUnreachable& said) {
  const std::lock_guard lock(mutex_);
  const bool waits = std::ranges::any_of(cut_off_, [s](const auto& one) { return one.first == s; });
  if (s + 1 >= hosts_.size() || relays_[s] || ready_[s] || waits)
    return runtime_error("it says that it can't reach the next stage, which it has no reason to");
  if (plan_.job) return tl::unexpected<Error>(said.error);
  cut_off_.emplace_back(s, said.error);
  changed_.notify_all();
  return {};
}

Status Generation::ask(size_t s, const std::optional<WeightBlockAsked>& asked) {
  if (weights_ == nullptr) return runtime_error("it asks for weights that nobody sends");
  return weights_->ask(control_[s], plan_.recipes[s], asked);
}

Status Generation::take(size_t s, StageReport& report) {
  const std::lock_guard lock(mutex_);
  SLUICE_TRY_STATUS(reports_[s].check(report));
  note_pass(s, report);
  if (s > 0 && relays_[s - 1]) relays_[s - 1]->heard(report.waited + report.end - report.begin);
  if (links_ != nullptr) links_->report(report);
  return {};
}

Status Generation::take(size_t s, Outcome& outcome) {
  const std::lock_guard lock(mutex_);
  SLUICE_TRY_STATUS(reports_[s].check(outcome));
  if (links_ != nullptr) links_->conclude(std::move(outcome));
  return {};
}

Status Generation::take(size_t s, Taps& taps) {
  if (!plan_.taps) return runtime_error("it sent states that nobody asked for");
  if (taps.stage != plan_.recipes[s].stage) return runtime_error("it sent the states of another stage");
  SLUICE_TRY_STATUS(plan_.taps->check(taps));
  const std::lock_guard lock(mutex_);
  SLUICE_TRY_STATUS(arrivals_.check({taps.batch, taps.stage}));
  if (links_ != nullptr) links_->tap(std::move(taps));
  return {};
}

void Generation::fail(size_t stage, const Error& error, bool in_set_up) {
  std::function<void(const Loss&)> lost;
  {
    const std::lock_guard lock(mutex_);
    if (loss_ || closed_) return;
    loss_ = Loss{error_of(error), stage, in_set_up};
    links_ = nullptr;
    lost = std::move(lost_);
    changed_.notify_all();
  }
  if (lost) lost(*loss_);
}

void Generation::stop() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  links_ = nullptr;
  lost_ = {};
  changed_.notify_all();
}

void Generation::close() {
  stop();
  for (const auto& control : control_)
    if (control) control->close();
  if (first_) first_->close();
  const std::lock_guard lock(mutex_);
  for (const auto& relay : relays_)
    if (relay) relay->close();
}

Relayed Generation::relayed() {
  const std::lock_guard lock(mutex_);
  Relayed all;
  for (const auto& relay : relays_) {
    if (!relay) continue;
    ++all.edges;
    all.batches += relay->batches();
    all.bytes += relay->bytes();
    all.seconds += relay->seconds();
  }
  return all;
}

}  // namespace sluice

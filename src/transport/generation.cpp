#include "transport/generation.h"

#include <openssl/rand.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "wire/codec.h"

namespace sluice {

namespace {

// Weight of the newest pass in what is known of a stage's passes.
constexpr double kNewestPass = 0.125;

// Whether it speaks of this host by its name.
bool is_of(const Error& error, const HostAddress& host) {
  const std::string name = kHost + host.text();
  const std::string_view rest = std::string_view(error.message).substr(std::min(error.message.size(), name.size()));
  return error.message.starts_with(name) && (rest.empty() || rest.front() == ':' || rest.front() == ' ');
}

}  // namespace

Loss loss_of(size_t seat, const Error& error, bool in_set_up) {
  const bool stopped = error.kind == ErrorKind::kInterrupted;
  return {{stopped ? error.kind : ErrorKind::kRuntime, error.message}, seat, in_set_up};
}

uint64_t random_epoch() {
  uint64_t epoch = 0;
  SLUICE_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&epoch), sizeof epoch) == 1,
               "the system has random numbers");
  return epoch;
}

Generation::Generation(const RemotePlan& plan, std::vector<HostAddress> hosts, Network& network, WeightServers weights,
                       Unreachable& unreachable, std::optional<Bits> former)
    : plan_(plan),
      hosts_(std::move(hosts)),
      network_(network),
      weights_(weights),
      unreachable_(unreachable),
      former_(std::move(former)),
      epoch_(random_epoch()),
      ready_(hosts_.size()),
      relays_(n_stages()),
      tap_relays_(n_stages()),
      arrivals_(plan_.recipes),
      submitted_(hosts_.size()),
      paces_(hosts_.size()) {
  for (size_t seat = 0; seat < hosts_.size(); ++seat)
    reports_.emplace_back(model_of(seat), recipe(seat), plan_.n_tokens);
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

Generation::Seats Generation::seats_of(ModelId model) const {
  if (plan_.head && model == plan_.head->id) return {n_stages(), hosts_.size()};
  return {0, n_stages()};
}

void Generation::submit(ModelId model, const Batch& batch) {
  const auto [first, end] = seats_of(model);
  const bool to_head = is_head(first);
  {
    const std::lock_guard lock(mutex_);
    for (size_t seat = first; seat < end; ++seat) reports_[seat].submitted(batch);
    if (!to_head) arrivals_.submitted(batch);
    if (!has_work(first)) paces_[first].since = Clock::now();
    ++submitted_[first];
  }
  Batch stamped = batch;
  stamped.after = sent_[to_head].lap();
  if (const Status sent = batches_[to_head]->send(std::move(stamped), Priority::kBulk); !sent)
    fail(first, sent.error());
}

void Generation::amend(ModelId model, const Amendment& amendment) {
  const auto [first, end] = seats_of(model);
  for (size_t seat = first; seat < end; ++seat)
    if (const Status sent = amendments_[seat]->send(amendment, Priority::kUrgent); !sent) fail(seat, sent.error());
}

// Batches have come to the stage that it has not reported.
bool Generation::has_work(size_t s) const {
  const bool is_first = s == 0 || is_head(s);
  return (is_first ? submitted_[s] : paces_[s - 1].batches) > paces_[s].batches;
}

void Generation::note_pass(size_t s, const StageReport& report) {
  const auto now = Clock::now();
  Pace& pace = paces_[s];
  const double seconds = report.received + report.end - report.begin;  // since the stage before was through with it
  if (report.rows_computed > 0)                                        // what a journal knew took no time
    pace.lately = pace.lately > 0.0 ? pace.lately + kNewestPass * (seconds - pace.lately) : seconds;
  pace.since = now;
  if (s + 1 < n_stages() && !has_work(s + 1)) paces_[s + 1].since = now;
  ++pace.batches;
}

void Generation::look_after(std::chrono::duration<double> stopped) {
  std::optional<size_t> hung;
  double still = 0.0;
  {
    const std::lock_guard lock(mutex_);
    for (Pace& pace : paces_) pace.since += std::chrono::duration_cast<Clock::duration>(stopped);
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

// Of another host a stage speaks by its name: of the next one, which batches go to, of the head's, or of one behind of
// which the next one has told it.
size_t Generation::whose_fault(size_t s, const Error& error) const {
  if (!error.message.starts_with(kHost) || is_head(s)) return s;
  for (size_t seat = s + 1; seat < hosts_.size(); ++seat)
    if (is_of(error, hosts_[seat])) return seat;
  return s + 1 < n_stages() ? s + 1 : s;
}

// Of the network's thread.
void Generation::take(size_t s, Frame frame) {
  auto message = decode(frame.bytes());
  if (message) {
    if (const auto* failed = std::get_if<WorkerFailed>(&*message))
      return fail(whose_fault(s, failed->error), said_by(control_[s]->peer(), failed->error), /*in_set_up=*/true);
    if (plan_.head && std::holds_alternative<Taps>(*message)) return take_on(s, std::move(frame));
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
  if (s + 1 >= n_stages() || relays_[s] || ready_[s] || waits)
    return runtime_error("it says that it can't reach the next stage, which it has no reason to");
  if (plan_.job) return tl::unexpected<Error>(said.error);
  cut_off_.emplace_back(s, said.error);
  changed_.notify_all();
  return {};
}

Status Generation::ask(size_t s, bool head, const std::optional<WeightBlockAsked>& asked) {
  WeightServer* const weights = head ? weights_.head : weights_.model;
  if (weights == nullptr || (head && !is_head(s))) return runtime_error("it asks for weights that nobody sends");
  return weights->ask(control_[s], recipe(s), asked);
}

Status Generation::take(size_t s, StageReport& report) {
  const std::lock_guard lock(mutex_);
  SLUICE_TRY_STATUS(reports_[s].check(report));
  note_pass(s, report);
  if (s > 0 && s < n_stages() && relays_[s - 1]) relays_[s - 1]->heard(report.waited + report.end - report.begin);
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

// By a thread of its own: this one must not be held up.
void Generation::take_on(size_t s, Frame frame) {
  std::shared_ptr<Relay> relay;
  {
    const std::lock_guard lock(mutex_);
    if (s < n_stages()) relay = tap_relays_[s];
  }
  if (relay) return relay->push(std::move(frame));
  fail(s, said_by(control_[s]->peer(), {ErrorKind::kRuntime, "it sent states that nobody asked for"}),
       /*in_set_up=*/true);
}

Status Generation::take(size_t s, const TapsArrived& taps) {
  if (!is_head(s)) return runtime_error("it says what only a head says");
  const std::lock_guard lock(mutex_);
  SLUICE_TRY_STATUS(arrivals_.check(taps));
  if (const auto& relay = tap_relays_[static_cast<size_t>(taps.stage.value)]) relay->heard(0.0);
  if (links_ != nullptr) links_->arrived(taps);
  return {};
}

void Generation::fail(size_t stage, const Error& error, bool in_set_up) {
  std::function<void(const Loss&)> lost;
  {
    const std::lock_guard lock(mutex_);
    if (loss_ || closed_) return;
    loss_ = loss_of(stage, error, in_set_up);
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
  for (const auto& batches : batches_) batches->close();
  const std::lock_guard lock(mutex_);
  for (const auto* relays : {&relays_, &tap_relays_})
    for (const auto& relay : *relays)
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

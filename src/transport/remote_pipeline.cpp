#include "transport/remote_pipeline.h"

#include <openssl/rand.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "transport/network.h"
#include "transport/weight_server.h"
#include "wire/codec.h"
#include "wire/hello.h"

namespace sluice {

namespace {

uint64_t random_epoch() {
  uint64_t epoch = 0;
  SLUICE_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&epoch), sizeof epoch) == 1,
               "the system has random numbers");
  return epoch;
}

class RemotePipeline final : public RemoteStages {
 public:
  explicit RemotePipeline(RemotePlan plan)
      : plan_(std::move(plan)),
        epoch_(random_epoch()),
        ready_(plan_.recipes.size()),
        arrivals_(plan_.recipes),
        network_(make_network(plan_.job, plan_.secret)) {
    if (plan_.model != nullptr)
      weights_.emplace(*plan_.model, plan_.on_sent, [this](const Error& error) { fail(error); });
    for (const StageRecipe& recipe : plan_.recipes) reports_.emplace_back(plan_.id, recipe, plan_.n_tokens);
  }

  ~RemotePipeline() override {
    network_.reset();  // nobody calls back any more, and every connection has ended
    weights_.reset();
  }

  Status open() {
    SLUICE_TRY_STATUS(reach_all());
    SLUICE_TRY_STATUS(set_up_all());
    SLUICE_TRY_STATUS(wait_for_all());
    SLUICE_TRY_STATUS(check_alike());
    auto first = network_->connect(plan_.hosts.front(), hello(0, Hello::Role::kBatches), {.patience = plan_.patience});
    if (!first) return tl::unexpected<Error>(failure(first.error()));
    first_ = std::move(*first);
    first_->listen(
        {.frame = [this](const Frame& frame) { take(0, frame); }, .end = [this](const Error& error) { fail(error); }});
    return {};
  }

  void start(Links& links, std::function<void(const Error&)> failed) override {
    const std::lock_guard lock(mutex_);
    links_ = &links;
    failed_ = std::move(failed);
    if (error_) failed_(*error_);
  }

  void submit(const Batch& batch) override {
    {
      const std::lock_guard lock(mutex_);
      for (ReportCheck& reports : reports_) reports.submitted(batch);
      arrivals_.submitted(batch);
    }
    if (const Status sent = first_->send(batch, Priority::kBulk); !sent) fail(sent.error());
  }

  void amend(const Amendment& amendment) override {
    for (const auto& control : control_)
      if (const Status sent = control->send(amendment, Priority::kUrgent); !sent) fail(sent.error());
  }

  Exactness exactness() const override { return exactness_; }

 private:
  Hello hello(size_t stage, Hello::Role role) const {
    return {.epoch = epoch_, .stage = StageId(static_cast<int32_t>(stage)), .role = role};
  }

  // All are there before one is asked to reach another.
  Status reach_all() {
    for (size_t s = 0; s < plan_.hosts.size(); ++s) {
      auto control = network_->connect(plan_.hosts[s], hello(s, Hello::Role::kControl), {.patience = plan_.patience});
      if (!control) return tl::unexpected<Error>(failure(control.error()));
      control_.push_back(std::move(*control));
    }
    return {};
  }

  Status set_up_all() {
    for (size_t s = 0; s < control_.size(); ++s) {
      control_[s]->listen({.frame = [this, s](const Frame& frame) { take(s, frame); },
                           .end = [this](const Error& error) { fail(error); }});
      StageSetup setup{.model = plan_.id,
                       .recipe = plan_.recipes[s],
                       .next = {},
                       .patience = plan_.patience,
                       .pace = plan_.pace,
                       .cuts = plan_.cuts};
      if (s + 1 < control_.size()) setup.next = plan_.hosts[s + 1].text();
      SLUICE_TRY_STATUS(control_[s]->send(setup, Priority::kUrgent));
    }
    return {};
  }

  Status wait_for_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return error_ || std::ranges::all_of(ready_, [](const auto& ready) { return ready.has_value(); });
    });
    if (error_) return tl::unexpected<Error>(*error_);
    uint8_t weakest = 0;
    for (const auto& ready : ready_) weakest = std::max(weakest, ready->exactness);
    exactness_ = static_cast<Exactness>(weakest);
    return {};
  }

  // ggml's kernels give other bits on another processor.
  Status check_alike() {
    if (plan_.alike.empty()) return {};
    for (size_t s = 1; s < ready_.size(); ++s)
      if (ready_[s]->instructions != ready_[0]->instructions)
        return runtime_error(control_[s]->peer() + " computes by other instructions (" + ready_[s]->instructions +
                             ") than " + control_[0]->peer() + " (" + ready_[0]->instructions +
                             "), and weights of type " + plan_.alike +
                             " have the same bits on like processors only: take like hosts, or a file of other types");
    return {};
  }

  // Of the network's thread.
  void take(size_t s, const Frame& frame) {
    auto message = decode(frame.bytes());
    const Status taken = message ? std::visit([&](auto& what) { return take(s, what); }, *message)
                                 : Status(tl::unexpected<Error>(message.error()));
    if (!taken) fail(said_by(control_[s]->peer(), taken.error()));
  }

  template <class Other>
  Status take(size_t, const Other&) {
    return runtime_error("it sent what no stage sends; do all hosts run the same release?");
  }
  Status take(size_t s, const StageReady& ready) {
    if (ready.exactness > static_cast<uint8_t>(Exactness::kNone))
      return runtime_error("its bits are of no known class");
    const std::lock_guard lock(mutex_);
    ready_[s] = ready;
    changed_.notify_all();
    return {};
  }
  Status take(size_t s, const WeightsAsked&) { return ask(s, std::nullopt); }
  Status take(size_t s, const WeightBlockAsked& asked) { return ask(s, asked); }
  Status ask(size_t s, const std::optional<WeightBlockAsked>& asked) {
    if (!weights_) return runtime_error("it asks for weights that nobody sends");
    return weights_->ask(control_[s], plan_.recipes[s], asked);
  }
  Status take(size_t, const WorkerFailed& failed) { return tl::unexpected<Error>(failed.error); }
  Status take(size_t s, StageReport& report) {
    const std::lock_guard lock(mutex_);
    SLUICE_TRY_STATUS(reports_[s].check(report));
    if (links_ != nullptr) links_->report(report);
    return {};
  }
  Status take(size_t s, Outcome& outcome) {
    const std::lock_guard lock(mutex_);
    SLUICE_TRY_STATUS(reports_[s].check(outcome));
    if (links_ != nullptr) links_->conclude(std::move(outcome));
    return {};
  }
  Status take(size_t s, Taps& taps) {
    if (!plan_.taps) return runtime_error("it sent states that nobody asked for");
    if (taps.stage != plan_.recipes[s].stage) return runtime_error("it sent the states of another stage");
    SLUICE_TRY_STATUS(plan_.taps->check(taps));
    const std::lock_guard lock(mutex_);
    SLUICE_TRY_STATUS(arrivals_.check({taps.batch, taps.stage}));
    if (links_ != nullptr) links_->tap(std::move(taps));
    return {};
  }

  void fail(const Error& error) {
    std::function<void(const Error&)> failed;
    {
      const std::lock_guard lock(mutex_);
      if (error_) return;
      const bool by_user = error.kind == ErrorKind::kInterrupted;
      error_ = Error{by_user ? error.kind : ErrorKind::kRuntime, error.message};
      failed = failed_;
      changed_.notify_all();
    }
    if (failed) failed(*error_);
  }

  // What a stage has said meanwhile explains more than that another can't be reached.
  Error failure(const Error& error) {
    const std::lock_guard lock(mutex_);
    return error_ ? *error_ : Error{ErrorKind::kRuntime, error.message};
  }

  const RemotePlan plan_;
  const uint64_t epoch_;
  std::vector<std::shared_ptr<Connection>> control_;  // by stage
  std::shared_ptr<Connection> first_;                 // that batches go by
  std::optional<WeightServer> weights_;               // for stages that lack them
  Exactness exactness_ = Exactness::kNone;

  std::mutex mutex_;  // guards what follows, and is held while `links_` is told
  std::condition_variable changed_;
  std::vector<std::optional<StageReady>> ready_;
  std::vector<ReportCheck> reports_;  // by stage
  ArrivalCheck arrivals_;
  std::optional<Error> error_;
  Links* links_ = nullptr;
  std::function<void(const Error&)> failed_;

  std::unique_ptr<Network> network_;
};

}  // namespace

Result<std::unique_ptr<RemoteStages>> open_remote_pipeline(RemotePlan plan) {
  SLUICE_CHECK(!plan.hosts.empty() && plan.hosts.size() == plan.recipes.size(), "a host for each stage");
  auto pipeline = std::make_unique<RemotePipeline>(std::move(plan));
  SLUICE_TRY_STATUS(pipeline->open());
  return pipeline;
}

}  // namespace sluice

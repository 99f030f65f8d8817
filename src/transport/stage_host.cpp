#include "transport/stage_host.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "base/machine_memory.h"
#include "transport/held_stage.h"
#include "transport/network.h"

namespace sluice {

namespace {

std::string gib(int64_t bytes) {
  const auto tenths = static_cast<int64_t>(static_cast<double>(bytes) / (int64_t{1} << 30) * 10 + 0.5);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

// What stages have set aside. Whoever wants more than is free waits for those that are being handed back.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t bytes) : all_(bytes), free_(bytes) {}

  // some_leave: whether somebody has ended and is going to give back.
  Status reserve(int64_t bytes, const std::function<bool()>& some_leave) {
    std::unique_lock lock(mutex_);
    while (bytes > free_ && some_leave()) changed_.wait_for(lock, std::chrono::milliseconds(50));
    if (bytes > free_)
      return runtime_error(
          "its part needs " + gib(bytes) + " of memory, and " + gib(free_) + " of " + gib(all_) +
          " are free: give it fewer layers by --cuts or a smaller --context, or start it with more --memory");
    free_ -= bytes;
    return {};
  }
  bool reserve_if_free(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > free_) return false;
    free_ -= bytes;
    return true;
  }
  void give_back(int64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      free_ += bytes;
    }
    changed_.notify_all();
  }
  int64_t all() const { return all_; }

 private:
  const int64_t all_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t free_;
};

}  // namespace

class StageHost::Impl {
 public:
  explicit Impl(const StageHostOptions& options)
      : options_(options),
        budget_(options.memory > 0 ? options.memory : machine_memory()),
        kept_([this](int64_t bytes) { budget_.give_back(bytes); }),
        network_(make_network(options.job, options.secret)),
        sweeper_([this] { sweep(); }) {}

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      changed_.notify_all();
      for (Held& held : held_) held.stage->end_because(Error{ErrorKind::kRuntime, "it is being shut down"});
    }
    network_->stop();  // who waits for a host need not
    for (Held& held : held_) held.thread.join();
    sweeper_.join();
  }

  Status listen() {
    ConnectionOptions options{.patience = options_.patience};
    options.progress = [this] { return progress(); };
    auto address = network_->listen(
        options_.listen, [this](const Hello& hello, const auto& connection) { return accept(hello, connection); },
        options);
    if (!address) return tl::unexpected<Error>(address.error());
    address_ = *address;
    return {};
  }

  void drain(double seconds) {
    {
      const std::lock_guard lock(mutex_);
      draining_ = true;
    }
    using Clock = std::chrono::steady_clock;
    const auto begin = Clock::now();
    const auto since = [](Clock::time_point time) {
      return std::chrono::duration<double>(Clock::now() - time).count();
    };
    auto idle = begin;
    for (uint64_t batches = progress();
         stages() > 0 && since(begin) < seconds && since(idle) < kIdle + kTurns * turn();) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      const uint64_t before = std::exchange(batches, progress());
      if (before != batches || busy()) idle = Clock::now();
    }
  }

  const HostAddress& address() const { return address_; }
  int64_t memory() const { return budget_.all(); }
  size_t stages() {
    const std::lock_guard lock(mutex_);
    size_t n = 0;
    for (const Held& held : held_) n += !held.done;
    return n;
  }

 private:
  static constexpr size_t kMostStages = 64;
  static constexpr double kKeepSeconds = 30.0;  // that a stage is kept for who may come back
  // So many seconds without a batch, and so many times what goes from one to the next: no answer is being made.
  static constexpr double kIdle = 1.0, kTurns = 3.0;
  static constexpr std::chrono::seconds kLeaving{2};  // for one that ends to be through with its batch

  struct Held {
    std::shared_ptr<HeldStage> stage;
    std::thread thread;
    bool done = false;  // the thread has nothing left to do
  };

  // On the network's thread.
  Status accept(const Hello& hello, const std::shared_ptr<Connection>& connection) {
    const std::lock_guard lock(mutex_);
    if (closing_) return runtime_error("it is being shut down");
    join_done();
    const auto same = std::ranges::find_if(held_, [&](const Held& held) { return held.stage->belongs_to(hello); });
    using Role = Hello::Role;
    if (hello.role == Role::kBatches || hello.role == Role::kRelay || hello.role == Role::kTaps) {
      if (same == held_.end() || same->stage->ended())
        return runtime_error("it holds no such stage any more: the pipeline has ended");
      HeldStage& stage = *same->stage;
      if (hello.role == Role::kTaps) return stage.take_taps(connection);
      return hello.role == Role::kBatches ? stage.take(connection) : stage.take_relay(connection);
    }
    if (draining_) return runtime_error("it is being shut down");
    if (same != held_.end()) return runtime_error("it holds that stage of this pipeline already");
    if (held_.size() >= kMostStages)
      return runtime_error("it holds " + std::to_string(kMostStages) +
                           " stages already: end another coordinator first");
    hold(std::make_shared<HeldStage>(means(), hello, connection));
    return {};
  }

  StageMeans means() {
    return {.network = network_.get(),
            .models = options_.models,
            .cache = options_.cache,
            .threads = options_.threads,
            .device = options_.device,
            .spare = options_.spare,
            .journal = options_.job ? 0 : options_.journal,
            .reserve = [this](int64_t bytes, const auto& ended) { return reserve(bytes, ended); },
            .reserve_if_free = [this](int64_t bytes) { return budget_.reserve_if_free(bytes); },
            .take = [this](const StageRecipe& recipe) { return take(recipe); },
            .keep =
                [this](MadeStage made) {
                  kept_.keep(std::move(made));
                  const std::lock_guard lock(mutex_);
                  changed_.notify_all();
                },
            .say = options_.say};
  }

  // Who has ended waits for nobody: others may be waiting for him.
  Status reserve(int64_t bytes, const std::function<bool()>& ended) {
    for (;;) {
      Status reserved = budget_.reserve(bytes, [&] { return !ended() && some_leave(); });
      if (reserved || !kept_.drop()) return reserved;
    }
  }

  // Whoever is about to leave may have it in hand.
  std::optional<MadeStage> take(const StageRecipe& recipe) {
    const auto until = std::chrono::steady_clock::now() + kLeaving;
    for (;;) {
      const bool some = some_leave();
      if (auto made = kept_.take(recipe)) return made;
      if (!some || std::chrono::steady_clock::now() > until) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  // Lets go what nobody has come back for.
  void sweep() {
    std::unique_lock lock(mutex_);
    while (!closing_) {
      if (kept_.empty())
        changed_.wait(lock);
      else
        changed_.wait_for(lock, std::chrono::seconds(1));
      lock.unlock();
      kept_.drop_older_than(kKeepSeconds);
      lock.lock();
    }
  }

  // Under the mutex.
  void hold(std::shared_ptr<HeldStage> stage) {
    Held& held = held_.emplace_back();
    held.stage = std::move(stage);
    held.stage->listen();
    held.thread = std::thread([this, &held] {
      held.stage->run();
      budget_.give_back(held.stage->bytes());
      const std::lock_guard lock(mutex_);
      held.done = true;
    });
  }

  bool some_leave() {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(held_, [](const Held& held) { return held.stage->ended() && !held.done; });
  }

  void join_done() {
    for (auto held = held_.begin(); held != held_.end();) {
      if (held->done) {
        held->thread.join();
        held = held_.erase(held);
      } else {
        ++held;
      }
    }
  }

  uint64_t progress() {
    const std::lock_guard lock(mutex_);
    uint64_t all = 0;
    for (const Held& held : held_) all += held.stage->progress();
    return all;
  }

  bool busy() {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(held_, [](const Held& held) { return !held.done && held.stage->busy(); });
  }

  // Of the slowest.
  double turn() {
    const std::lock_guard lock(mutex_);
    double longest = 0.0;
    for (const Held& held : held_)
      if (!held.done) longest = std::max(longest, held.stage->turn());
    return longest;
  }

  const StageHostOptions options_;
  MemoryBudget budget_;
  KeptStages kept_;
  HostAddress address_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::list<Held> held_;  // where they are they stay
  bool closing_ = false;
  bool draining_ = false;
  std::unique_ptr<Network> network_;  // the first to go
  std::thread sweeper_;
};

StageHost::StageHost(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StageHost::~StageHost() = default;

Result<std::unique_ptr<StageHost>> StageHost::open(const StageHostOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  SLUICE_TRY_STATUS(impl->listen());
  return std::unique_ptr<StageHost>(new StageHost(std::move(impl)));
}

const HostAddress& StageHost::address() const { return impl_->address(); }
int64_t StageHost::memory() const { return impl_->memory(); }
size_t StageHost::stages() const { return impl_->stages(); }
void StageHost::drain(double seconds) { impl_->drain(seconds); }

}  // namespace sluice

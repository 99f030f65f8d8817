#include "transport/remote_pipeline.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <utility>

#include "transport/generation.h"
#include "transport/knocks.h"
#include "transport/network.h"
#include "transport/replacements.h"
#include "transport/weight_server.h"
#include "wire/codec.h"
#include "wire/hello.h"

namespace sluice {

namespace {

constexpr double kConnect = 5.0;  // seconds for a host to answer at first
// The same for one that stands in, since others may, and an answer waits for it.
constexpr double kConnectAgain = 1.0;
constexpr std::chrono::milliseconds kLook{250};  // between two looks at what stages do
constexpr std::chrono::seconds kStopped{1};      // a look that is so late: this process was not running
constexpr std::chrono::milliseconds kAgain{50};  // between two looks for who is missing

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f s", seconds);
  return text;
}

// Generations of stages: when one is lost, a thread of its own opens the next, on the hosts that are left and in the
// places of the others on who stands in for them, while the coordinator goes on.
class RemotePipeline final : public RemoteStages {
 public:
  explicit RemotePipeline(RemotePlan plan)
      : plan_(std::move(plan)),
        network_(make_network(plan_.job, plan_.secret)),
        replacements_(seats_of(plan_), plan_.spares) {
    knocks_.emplace(*network_, [this](const HostAddress& host) { note_answer(host); });
    if (plan_.model != nullptr) serve_weights(*plan_.model);
  }

  ~RemotePipeline() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      if (opening_) opening_->stop();
      changed_.notify_all();
    }
    knocks_->stop();
    network_->stop();  // who waits for a host need not
    if (mender_.joinable()) mender_.join();
    if (caller_.joinable()) caller_.join();
    knocks_.reset();
    // Emulated links of theirs send by the network, and may wait for room.
    if (generation_) generation_->close();
    opening_.reset();
    generation_.reset();
    network_.reset();  // nobody calls back any more, and every connection has ended
    weights_.reset();
    head_weights_.reset();
  }

  Status open() {
    const auto generation = make_generation(seats_of(plan_), {});
    prepare_for(generation);
    const auto opened = generation->open(std::max(kConnect, plan_.patience));
    if (!opened) return tl::unexpected<Error>(opened.error().error);
    generation_ = generation;
    unreachable_at_first_ = unreachable_;
    bits_ = generation_->bits();
    return {};
  }

  void start(Links& links, Ears ears) override {
    links_ = &links;
    ears_ = std::move(ears);
    listen(*generation_, number_);
    mender_ = std::thread([this] { mend(); });
    if (plan_.id == kTarget && !plan_.spares.empty()) caller_ = std::thread([this] { call_spares(); });
  }

  void submit(ModelId model, const Batch& batch) override {
    if (const auto generation = current()) generation->submit(model, batch);
  }
  void amend(ModelId model, const Amendment& amendment) override {
    if (const auto generation = current()) generation->amend(model, amendment);
  }

  void resume(uint32_t number) override {
    const std::lock_guard lock(mutex_);
    if (number != number_) return;
    if (state_ == State::kReplaced) state_ = State::kRuns;
    again_ = state_ == State::kGivenUp;
    if (again_) state_ = State::kLost;
    changed_.notify_all();
  }

  Relayed relayed() override {
    const std::lock_guard lock(mutex_);
    Relayed all = former_relayed_;
    add(all, *generation_);
    return all;
  }
  Exactness exactness() const override { return bits_.exactness; }

 private:
  enum class State : uint8_t {
    kRuns,
    kLost,      // the next generation is looked for
    kReplaced,  // it is there, and the coordinator has not resumed
    kGivenUp,   // nobody was found
  };
  using Clock = std::chrono::steady_clock;

  static std::vector<HostAddress> seats_of(const RemotePlan& plan) {
    std::vector<HostAddress> hosts = plan.hosts;
    if (plan.head) hosts.push_back(plan.head->host);
    return hosts;
  }

  void serve_weights(const ModelFile& model) {
    const auto failed = [this](const Error& error) { end(error); };
    weights_.emplace(
        model.files(), [&model](const StageRecipe& recipe) { return offer_weights(model, recipe); }, plan_.on_sent,
        failed);
    if (!plan_.head || plan_.head->file == nullptr) return;
    const HeadFile& head = *plan_.head->file;
    head_weights_.emplace(
        head.files(), [&](const StageRecipe& recipe) { return offer_weights(head, model, recipe); }, plan_.on_sent,
        failed);
  }

  // What a seat holds, for people.
  const char* layers_of(size_t seat) const { return seat < plan_.hosts.size() ? "layers" : "head"; }

  static void add(Relayed& all, Generation& generation) {
    const Relayed more = generation.relayed();
    all.edges = more.edges;
    all.batches += more.batches;
    all.bytes += more.bytes;
    all.seconds += more.seconds;
  }

  std::shared_ptr<Generation> make_generation(std::vector<HostAddress> hosts, std::optional<Bits> former) {
    const WeightServers weights{.model = weights_ ? &*weights_ : nullptr,
                                .head = head_weights_ ? &*head_weights_ : nullptr};
    return std::make_shared<Generation>(plan_, std::move(hosts), *network_, weights, unreachable_, std::move(former));
  }

  // What has gone wrong on this side: with the model's file, or the user wants it to stop.
  void end(const Error& error) {
    std::shared_ptr<Generation> opening;
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      ended_ = error;
      opening = opening_;
    }
    if (opening) opening->fail(0, error);  // which may tell of the loss, if it runs by now
  }

  // What takes batches; null: nobody does.
  std::shared_ptr<Generation> current() {
    const std::lock_guard lock(mutex_);
    return state_ == State::kRuns ? generation_ : nullptr;
  }

  void listen(Generation& generation, uint32_t number) {
    generation.start(*links_, [this, number](const Loss& loss) { lose(number, loss); });
  }

  void lose(uint32_t number, const Loss& loss) {
    const std::lock_guard lock(mutex_);
    if (number != number_ || state_ == State::kLost || state_ == State::kGivenUp) return;
    state_ = State::kLost;
    loss_ = loss;
    changed_.notify_all();
  }

  double now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  bool is_closing() {
    const std::lock_guard lock(mutex_);
    return closing_;
  }

  // Has the spares look for the model. Of a thread of its own, since a silent one would hold up what is more urgent.
  void call_spares() {
    const uint64_t epoch = random_epoch();
    for (size_t i = 0; i < plan_.spares.size(); ++i) {
      const StageId number(static_cast<int32_t>(i));
      auto spare = network_->connect(plan_.spares[i], {.epoch = epoch, .stage = number, .role = Hello::Role::kSpare},
                                     {.connect = kConnectAgain});
      if (is_closing()) return;
      if (!spare) {
        plan_.say(spare.error().message + " (it is a spare, and is not needed yet)");
        continue;
      }
      const auto complain = [this](const Error& error) { plan_.say(error.message + " (it is a spare)"); };
      (*spare)->listen({.frame =
                            [complain, peer = (*spare)->peer()](const Frame& frame) {
                              const auto message = decode(frame.bytes());
                              const auto* failed = message ? std::get_if<WorkerFailed>(&*message) : nullptr;
                              if (failed != nullptr) complain(said_by(peer, failed->error));
                            },
                        .end = [](const Error&) {}});
      StageSetup setup{.recipe = plan_.recipes.back(), .next = {}};
      setup.recipe.stage = number;
      static_cast<void>((*spare)->send(setup, Priority::kUrgent));
      spares_.push_back(std::move(*spare));
    }
  }

  // Of a thread of its own.
  void mend() {
    std::unique_lock lock(mutex_);
    while (!closing_) {
      if (state_ == State::kLost) {
        const Loss loss = *loss_;
        const bool again = std::exchange(again_, false);
        const auto former = generation_;
        lock.unlock();
        former->close();
        if (!again && !plan_.job) say_lost(loss);
        auto next = replace(loss);
        lock.lock();
        if (closing_) return;
        const bool for_good = !next && (ended_ || plan_.job);
        if (for_good) {
          state_ = State::kGivenUp;
          lock.unlock();
          return ears_.failed(next.error());
        }
        ++number_;
        const uint32_t number = number_;
        state_ = next ? State::kReplaced : State::kGivenUp;
        if (next) {
          add(former_relayed_, *generation_);
          generation_ = *next;
        }
        lock.unlock();
        if (next) {
          listen(**next, number);
          ears_.replaced(number);
        } else {
          ears_.lost(next.error(), number);
        }
        lock.lock();
        continue;
      }
      const auto begin = Clock::now();
      changed_.wait_for(lock, kLook);
      if (state_ != State::kRuns) continue;
      const auto generation = generation_;
      lock.unlock();
      const auto waited = Clock::now() - begin;
      generation->look_after(waited > kStopped ? waited : Clock::duration::zero());
      lock.lock();
    }
  }

  void say_lost(const Loss& loss) const {
    plan_.say(loss.error.message + "; its " + layers_of(loss.stage) +
              (loss.stage < plan_.hosts.size() ? " go" : " goes") + " to others");
  }

  // Somebody for the stages of who is lost. The error names who was, and the remedy.
  Result<std::shared_ptr<Generation>> replace(const Loss& loss) {
    if (plan_.job) return tl::unexpected<Error>(loss.error);  // MPI ends all ranks
    const double begin = now();
    const HostAddress lost = replacements_.seats()[loss.stage];
    const std::string layers = layers_of(loss.stage);
    replacements_.lose({loss.stage}, begin);
    forget_answers();
    std::string refusal;
    while (now() - begin < plan_.search) {
      look_for_others();
      const auto hosts = replacements_.next(now());
      auto generation = hosts ? make_generation(*hosts, bits_) : nullptr;
      if (!prepare_for(generation)) break;
      if (!generation) continue;
      const auto opened = generation->open(kConnectAgain);
      if (opened) {
        unreachable_ = unreachable_at_first_;  // in so short a time a lost packet is enough
        knocks_->stop();
        replacements_.settled();
        const HostAddress& heir = (*hosts)[loss.stage];
        const bool other_bits = heir != lost && bits_.exactness != Exactness::kBitwise;
        plan_.say(kHost + heir.for_people() +
                  (heir == lost ? " is back after " : " has the " + layers + " of " + lost.for_people() + " after ") +
                  seconds_text(now() - begin) +
                  (other_bits ? "; from here on the text may be another one, since bits are " +
                                    std::string(name(bits_.exactness)) + " only"
                              : ""));
        return generation;
      }
      generation->close();
      refusal = opened.error().error.message;
      blame(opened.error());
    }
    knocks_->stop();
    const std::lock_guard lock(mutex_);
    if (ended_) return tl::unexpected<Error>(*ended_);
    return runtime_error(loss.error.message + "; nobody has taken its " + layers +
                         (refusal.empty() || refusal == loss.error.message ? "" : " (" + refusal + ")") +
                         ": start sluice stage there again, or name others by --spares");
  }

  void note_answer(const HostAddress& host) {
    const std::lock_guard lock(mutex_);
    answers_.push_back(host);
    changed_.notify_all();
  }

  void forget_answers() {
    const std::lock_guard lock(mutex_);
    answers_.clear();
  }

  void look_for_others() {
    for (const HostAddress& host : replacements_.unheard()) knocks_->at(host);
    const std::lock_guard lock(mutex_);
    for (const HostAddress& host : std::exchange(answers_, {})) replacements_.answered(host);
  }

  // Whether to go on; without a generation to open, when somebody has answered, or after a while.
  bool prepare_for(const std::shared_ptr<Generation>& generation) {
    std::unique_lock lock(mutex_);
    if (!generation) changed_.wait_for(lock, kAgain, [this] { return closing_ || !answers_.empty(); });
    opening_ = generation;
    return !closing_ && !ended_;
  }

  // Where a stage got no further because of the next one, and only that is new, it is that one's fault.
  void blame(const Loss& loss) {
    const bool of_next = loss.in_set_up && !replacements_.is_new(loss.stage) && loss.stage + 1 < plan_.hosts.size() &&
                         replacements_.is_new(loss.stage + 1);
    const size_t stage = loss.stage + (of_next ? 1 : 0);
    loss.in_set_up ? replacements_.refused(stage, now()) : replacements_.silent(stage, now());
  }

  const RemotePlan plan_;
  const Clock::time_point start_ = Clock::now();
  std::unique_ptr<Network> network_;
  Bits bits_;  // of all generations
  Links* links_ = nullptr;
  Ears ears_;
  std::optional<Knocks> knocks_;
  Replacements replacements_;                           // of the mender
  std::vector<std::shared_ptr<Connection>> spares_;     // whom the model is known to; of the caller
  std::optional<WeightServer> weights_, head_weights_;  // for stages and heads that lack them
  Unreachable unreachable_, unreachable_at_first_;      // of who opens generations, one after the other

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  State state_ = State::kRuns;
  uint32_t number_ = 0;  // of the generation
  std::shared_ptr<Generation> generation_, opening_;
  Relayed former_relayed_;  // by generations before
  std::optional<Loss> loss_;
  bool again_ = false;  // nobody was found for it before
  std::optional<Error> ended_;
  std::vector<HostAddress> answers_;  // that have not been looked at
  bool closing_ = false;
  std::thread mender_, caller_;
};

}  // namespace

Result<std::unique_ptr<RemoteStages>> open_remote_pipeline(RemotePlan plan) {
  SLUICE_CHECK(!plan.hosts.empty() && plan.hosts.size() == plan.recipes.size(), "a host for each stage");
  auto pipeline = std::make_unique<RemotePipeline>(std::move(plan));
  SLUICE_TRY_STATUS(pipeline->open());
  return pipeline;
}

}  // namespace sluice

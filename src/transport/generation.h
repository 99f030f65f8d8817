// A model's stages on other hosts, and a head of it if that is on one too: opened together and lost together. A seat is
// a place in their list: the stages', then the head's.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/frame_check.h"
#include "pipeline/link_clock.h"
#include "pipeline/route.h"
#include "transport/link_meter.h"
#include "transport/network.h"
#include "transport/relay.h"
#include "transport/remote_pipeline.h"
#include "transport/weight_server.h"
#include "wire/hello.h"

namespace sluice {

// Of a pipeline, or of a talk with spares.
uint64_t random_epoch();

// Whose fault it is that a generation ended, or could not be opened.
struct Loss {
  Error error;             // names the host
  size_t stage = 0;        // the seat of that host
  bool in_set_up = false;  // it answered, but did not get ready
};
// What a user has stopped stays that.
Loss loss_of(size_t seat, const Error& error, bool in_set_up = false);

// Of files that stages, or the head, may lack; null: they must have them.
struct WeightServers {
  WeightServer *model = nullptr, *head = nullptr;
};

// What tells whether the bits of two generations are the same.
struct Bits {
  Exactness exactness = Exactness::kNone;  // of the weakest stage
  std::string instructions;                // of one: where it matters, of all
};

// Hosts of which the first can't reach the second.
using Unreachable = std::set<std::pair<std::string, std::string>>;

// Whatever is sent between its processes bears its epoch, so that nothing of it gets into another one. Thread safety:
// any thread.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // REQUIRES: plan, network and weights outlive this. hosts: by seat. unreachable: what is known of it, and what open()
  // finds out. former: of the one before, if there was one; bits may become neither weaker nor other ones.
  Generation(const RemotePlan& plan, std::vector<HostAddress> hosts, Network& network, WeightServers weights,
             Unreachable& unreachable, std::optional<Bits> former = {});

  // Waits until every host has made its stage and reached the next, if need be by way of this process. connect: seconds
  // that one may take to answer.
  tl::expected<void, Loss> open(double connect);
  // What the stages say goes to `links` from now on, on the network's thread. lost: is told once; then nothing is
  // passed on any more.
  void start(Links& links, std::function<void(const Loss&)> lost);

  // To the stages, or to the head.
  void submit(ModelId model, const Batch& batch);
  void amend(ModelId model, const Amendment& amendment);
  // Loses a stage that has computed nothing for far longer than a pass takes, although batches lie before it. stopped:
  // for so long this process has not run, and heard of nothing.
  void look_after(std::chrono::duration<double> stopped);
  // Has open() end soon, and nothing be told any more.
  void stop();
  // The same, and its connections end. REQUIRES: it is not being opened.
  void close();

  // It is lost, for this reason. A no-op if it is already.
  void fail(size_t stage, const Error& error, bool in_set_up = false);

  const Bits& bits() const { return bits_; }  // once it is open
  Relayed relayed();

 private:
  using Clock = std::chrono::steady_clock;

  struct Seats {
    size_t first, end;
  };
  size_t n_stages() const { return plan_.recipes.size(); }
  bool is_head(size_t seat) const { return seat == n_stages(); }
  const StageRecipe& recipe(size_t seat) const { return is_head(seat) ? plan_.head->recipe : plan_.recipes[seat]; }
  ModelId model_of(size_t seat) const { return is_head(seat) ? plan_.head->id : plan_.id; }
  Seats seats_of(ModelId model) const;
  // Whether the head reads what this stage computes.
  bool feeds_head(size_t s) const { return plan_.head && !recipe(s).options.taps.empty(); }
  // Whether that comes by the coordinator's connection. REQUIRES: the stage is ready; under the mutex.
  bool taps_come_here(size_t s) const {
    return feeds_head(s) && (needs_relay(s, n_stages()) || !ready_[s]->cut_off.empty());
  }

  // How far a stage has got.
  struct Pace {
    int64_t batches = 0;        // that it has reported
    Clock::time_point since{};  // it has had one to compute
    double lately = 0.0;        // seconds of a pass and of the link before it, a running average; 0: unknown
  };

  void lay_ways();
  PipelineLinks links() const;
  PipelineLinks links_of_head() const;
  StageSetup setup_of_stage(size_t s) const;
  StageSetup setup_of_head() const;
  Hello hello(size_t seat, Hello::Role role) const;
  ConnectionOptions connection_options(double connect) const;
  tl::expected<void, Loss> reach_all(double connect);
  tl::expected<void, Loss> make_ready(double connect);
  Loss first_loss(const Loss& known);
  bool needs_relay(size_t stage, size_t to) const;
  tl::expected<void, Loss> lay_relays(const std::vector<size_t>& stages, double connect);
  tl::expected<void, Loss> lay_tap_relays(double connect);
  tl::expected<std::shared_ptr<Connection>, Loss> reach(size_t stage, Hello::Role role, double connect);
  void hear(size_t stage, Connection& connection);
  tl::expected<void, Loss> set_up_all(double connect);
  tl::expected<void, Loss> wait_for_all(double connect);
  void note_cut_off();
  tl::expected<void, Loss> check_alike() const;
  size_t whose_fault(size_t s, const Error& error) const;
  void take(size_t s, Frame frame);
  void take_on(size_t s, Frame taps);
  template <class Other>
  Status take(size_t, const Other&) {
    return runtime_error("it sent what no stage sends; do all hosts run the same release?");
  }
  Status take(size_t s, const StageReady& ready);
  Status take(size_t s, const NextUnreachable& said);
  Status take(size_t s, const WeightsAsked& asked) { return ask(s, asked.head, std::nullopt); }
  Status take(size_t s, const WeightBlockAsked& asked) { return ask(s, asked.head, asked); }
  Status ask(size_t s, bool head, const std::optional<WeightBlockAsked>& asked);
  Status take(size_t s, StageReport& report);
  Status take(size_t s, Outcome& outcome);
  Status take(size_t s, Taps& taps);
  Status take(size_t s, const TapsArrived& taps);
  void note_pass(size_t s, const StageReport& report);
  bool has_work(size_t s) const;

  const RemotePlan& plan_;
  const std::vector<HostAddress> hosts_;  // by seat
  Network& network_;
  const WeightServers weights_;
  Unreachable& unreachable_;  // of who opens
  const std::optional<Bits> former_;
  const uint64_t epoch_;
  std::vector<std::shared_ptr<Connection>> control_;  // by seat
  // The ways that messages go; each has a link of its own if links are emulated.
  std::vector<std::shared_ptr<Connection>> batches_;     // to stage 0, to the head
  std::vector<std::shared_ptr<Connection>> amendments_;  // by seat
  std::array<Stopwatch, 2> sent_;                        // batches, likewise
  Bits bits_;

  std::mutex mutex_;  // guards what follows, and is held while `links_` is told
  std::condition_variable changed_;
  std::vector<std::optional<StageReady>> ready_;
  std::vector<std::pair<size_t, Error>> cut_off_;  // stages that can't reach the next, and wait for us to come
  // By the stage before; null: it reaches the next, or the head.
  std::vector<std::shared_ptr<Relay>> relays_, tap_relays_;
  std::vector<ReportCheck> reports_;  // by seat
  ArrivalCheck arrivals_;
  std::vector<int64_t> submitted_;  // by seat, to stage 0 and to the head
  std::vector<Pace> paces_;         // by seat
  std::optional<Loss> loss_;
  bool closed_ = false;
  Links* links_ = nullptr;
  std::function<void(const Loss&)> lost_;
};

}  // namespace sluice

// A stage, or a head, that is held for a coordinator in another process.
//
// The coordinator's connection brings the recipe and amendments and takes reports, verdicts and guesses; batches come
// on a connection from whoever is before this stage, and go on to the next on one that this stage opens. What a head
// reads goes by the coordinator's connection, or to a head on another host by one that this stage opens. When the
// coordinator's connection ends, so does the stage.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/cost_model.h"
#include "pipeline/recipe.h"
#include "pipeline/route.h"
#include "transport/frame_queue.h"
#include "transport/kept_stages.h"
#include "transport/link_meter.h"
#include "transport/network.h"
#include "transport/weight_fetch.h"
#include "transport/weight_store.h"
#include "wire/hello.h"

namespace sluice {

// What a stage is made and held with.
struct StageMeans {
  Network* network = nullptr;
  std::string models;   // a folder of GGUF files; may be empty
  WeightCache cache;    // of what coordinators send
  int32_t threads = 0;  // of each stage; 0: as the coordinator asks, or all
  std::string device;   // of each stage; empty: as the coordinator asks
  bool spare = false;   // only in place of stages that are lost
  int64_t journal = 0;  // bytes of states that a stage keeps, for when another one is lost
  // Sets so many bytes aside for a stage, which has perhaps ended. Errors say how many there are.
  std::function<Status(int64_t, const std::function<bool()>& ended)> reserve;
  std::function<bool(int64_t)> reserve_if_free;  // the same, if nobody has to go for it
  // A stage like that which is at hand, and one that is no longer used; with the bytes that are set aside for it.
  std::function<std::optional<MadeStage>(const StageRecipe&)> take;
  std::function<void(MadeStage)> keep;
  std::function<void(const std::string&)> say;  // a line for who looks after this host
};

class HeldStage final : public std::enable_shared_from_this<HeldStage>, private Links {
 public:
  HeldStage(const StageMeans& means, const Hello& hello, std::shared_ptr<Connection> control);

  // On the network's thread: hears the coordinator from now on.
  void listen();
  // Batches come by this connection. On the network's thread. Errors: they come already.
  Status take(std::shared_ptr<Connection> batches);
  // To a head: what a stage of the target taps comes by this connection. Likewise; one a stage.
  Status take_taps(std::shared_ptr<Connection> taps);
  // The coordinator has come for what goes to the next stage. Likewise.
  Status take_relay(std::shared_ptr<Connection> relay);

  // Makes the stage and serves it until it ends; on a thread of its own.
  void run();
  // Ends it. Any thread.
  void end();
  void end_because(const Error& error);

  bool belongs_to(const Hello& hello) const {
    return hello.epoch == hello_.epoch && hello.model == hello_.model && hello.stage == hello_.stage;
  }
  bool ended() const { return ended_; }
  uint64_t progress() const { return progress_; }  // batches
  bool busy() const { return busy_; }              // with a batch
  double turn() const { return turn_; }            // seconds from batch to batch, lately
  int64_t bytes() const { return bytes_; }         // that were set aside

 private:
  Status serve();
  Result<std::optional<StageSetup>> next_setup();
  Status make(const StageSetup& setup);
  Result<MadeStage> made_of(const StageRecipe& recipe, const std::string& memo);
  Result<MadeStage> made_head(const StageRecipe& recipe);
  Status stand_by(const StageSetup& setup);
  Result<ModelFile> model_of(const StageRecipe& recipe);
  Result<HeadFile> head_of(const StageRecipe& recipe, const ModelFile& target);
  FetchMeans fetch_means();
  Status set_aside(int64_t bytes);
  Result<StageRecipe> set_aside_for(const StageRecipe& recipe, const ModelFile& model);
  void keep_journal();
  Status keep_pace(const StageSetup& setup, int32_t d_model);
  Status reach_next(const StageSetup& setup);
  void reach_head(const StageSetup& setup);
  Result<std::shared_ptr<Connection>> connect(const std::string& to, const Hello& hello, const StageSetup& setup);
  void hear(Connection& onward);
  void take_from(Connection& before);
  Result<std::shared_ptr<Connection>> wait_for_relay();
  void lay_ways(size_t n_stages);
  Status process(const Frame& frame);
  Status process(Batch batch, const Frame& frame);
  Status receive(const Taps& taps);
  Status take_amendments();
  void note_turn(std::chrono::steady_clock::time_point begin);
  double seconds_to(std::chrono::steady_clock::time_point time) const;

  void pass_on(Batch batch) override;
  void tap(Taps taps) override;
  void report(StageReport report) override;
  void conclude(Outcome outcome) override;
  void send(Connection& to, const Message& message, Priority priority);

  const StageMeans means_;
  const Hello hello_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const std::shared_ptr<Connection> control_;
  FrameQueue from_coordinator_, batches_;
  std::vector<std::unique_ptr<FileLock>> in_use_;  // weights that were fetched
  std::shared_ptr<Connection> next_, head_;        // of the stage's thread, as what follows
  std::string cut_off_;                            // why the head can't be reached
  // The ways that messages go, by these and `control_`; each has a link of its own if links are emulated.
  struct Ways {
    std::shared_ptr<Connection> onward, taps, reports, outcomes;
  };
  Ways ways_;
  bool relayed_ = false;  // next_ leads to the coordinator
  std::string what_;      // it is, for people
  ModelId model_ = kTarget;
  std::optional<MadeStage> made_;
  bool sound_ = true;  // nothing has gone wrong within it
  bool last_ = true;
  std::optional<CostModel> pace_;
  std::optional<Error> broken_;  // a send that failed
  double waited_ = 0;            // seconds that the batch in hand lay in front of the stage
  uint16_t rows_received_ = 0;   // with which it came
  double computed_ = 0;          // seconds, of its pass
  LinkMeter link_;               // that batches come by
  double received_ = 0;          // seconds that the batch in hand occupied it
  Stopwatch passed_on_;
  std::chrono::steady_clock::time_point begun_;  // the batch before

  std::mutex mutex_;                               // guards the next three
  std::shared_ptr<Connection> before_;             // whom batches come from
  std::shared_ptr<Connection> relay_;              // by which the coordinator takes them on
  std::vector<std::shared_ptr<Connection>> taps_;  // to a head: by which states come
  std::condition_variable relay_came_;
  std::atomic<bool> ended_ = false;
  std::atomic<uint64_t> progress_ = 0;
  std::atomic<bool> busy_ = false;
  std::atomic<double> turn_ = 0;
  std::atomic<int64_t> bytes_ = 0;
};

}  // namespace sluice

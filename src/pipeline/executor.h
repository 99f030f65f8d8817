// The one seam between the engine and the world: who computes, where, and by which clock.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "pipeline/cost_model.h"
#include "pipeline/remote_stages.h"
#include "pipeline/worker.h"
#include "wire/batch.h"
#include "wire/report.h"

namespace sluice {

// The time that was asked for has come.
struct Woken {};

// Stages of a model were lost, and with them all that its stages held and all that was under way in them: nothing of
// that comes any more. Others are in their place, which hold nothing; they take no batch before resume().
// generation: the number of those others.
struct StagesReplaced {
  ModelId model = kTarget;
  uint32_t generation = 0;
};
// The same, but nobody has room for their layers: the error names who was lost, and the remedy. resume() has them
// looked for again.
struct StagesLost {
  ModelId model = kTarget;
  Error error;
  uint32_t generation = 0;
};

using Event = std::variant<Outcome, StageReport, TapsArrived, WorkerFailed, Woken, StagesReplaced, StagesLost>;

// Runs the stages of all models. Used by one thread, the coordinator's.
class Executor {
 public:
  virtual ~Executor() = default;

  // Waits until something has happened; on a simulated clock, advances it. REQUIRES: a batch is somewhere in the
  // pipeline.
  virtual Event next() = 0;
  // What else has happened by now, without waiting. On a simulated clock: at this very instant.
  virtual std::optional<Event> poll() = 0;

  // Puts a batch into the queue of the model's first stage.
  virtual void submit(ModelId model, Batch batch) = 0;
  // Tells every stage of the model; it may overtake batches, not an earlier amendment.
  virtual void amend(ModelId model, Amendment amendment) = 0;

  // The coordinator has come to terms with the loss that an event of this generation has told of: what it submits from
  // now on is for the stages that there are then. Until then what it submits to the model is dropped.
  virtual void resume(ModelId /*model*/, uint32_t /*generation*/) {}

  // Makes next() return `Woken` at this time, at the latest.
  virtual void wake_at(double time) = 0;

  virtual Relayed relayed() { return {}; }  // of the target
  virtual double now() const = 0;           // seconds on this executor's clock
  virtual bool simulated() const = 0;
  virtual Exactness exactness() const = 0;  // of the target's stages, the weakest of them
  virtual const char* name() const = 0;     // "threads", "hosts", "virtual"
};

// The stages of one model and what they take. Models are numbered as they are listed, the target first.
struct Pipeline {
  std::vector<Worker> workers;
  std::unique_ptr<RemoteStages> remote;  // if they are elsewhere: instead of workers
  std::optional<CostModel> cost;
  // What the target taps goes to its first worker, and then TapsArrived to the coordinator. Without workers or stages
  // of its own it is held with the target's stages elsewhere.
  bool is_head = false;
  std::optional<size_t> shares = {};  // the stage of the target on whose device it runs, a pass at a time
  std::function<Result<std::vector<Worker>>()> remake = {};  // simulated: the workers anew, holding nothing
};

inline Exactness exactness_of(const Pipeline& target) {
  Exactness weakest = target.remote ? target.remote->exactness() : Exactness::kBitwise;
  for (const Worker& worker : target.workers) weakest = std::max(weakest, worker.exactness());
  return weakest;
}

// One thread a stage, queues between them, the real clock. A model with a cost is paced: each stage takes at least the
// time that the cost model gives and each link at least its own. Stages elsewhere keep their own time.
std::unique_ptr<Executor> make_threads_executor(std::vector<Pipeline> models);

// One thread for everything, events in the order of a simulated clock: deterministic. With `jitter` > 0 every duration
// is multiplied by a factor between 1/(1+jitter) and 1+jitter drawn from `seed`: for tests that want other timings.
struct Jitter {
  double amount = 0;
  uint64_t seed = 0;
};

// What goes wrong on the simulated clock, from a seed: for tests. Each channel (batches to a stage, amendments to it,
// its reports, what it taps, outcomes of a model) keeps its order; whatever goes over two of them may come in any.
struct Faults {
  uint64_t seed = 0;
  double delays = 0;              // the share of messages that are held up
  double duplicates = 0;          // the share of amendments that come twice, the second time later
  double stalls = 0;              // the share of batches in which their worker stands still for a while
  double longest = 0;             // seconds, of each of these
  std::optional<uint64_t> crash;  // before the n-th thing that happens a worker ends, any one, for good
  std::set<uint64_t> losses;      // before these a stage of a model is lost, and for a while nobody is in its place
  ModelId whose = kTarget;        // that model
  int64_t journal = 0;            // bytes of states that stages keep: those that are not lost know what they computed
  double nobody = 0;              // the share of losses after which nobody has room for its layers, when first asked
  // Sees what enters a model, and which rows of it each stage has computed.
  std::function<void(ModelId, const Batch&)> on_submit = {};
  std::function<void(ModelId, StageId, const Batch&)> on_computed = {};
  std::function<void(ModelId)> on_replaced = {};  // its stages hold nothing now
};
// REQUIRES: every model has a cost, and its workers here; a model that loses stages can be remade.
std::unique_ptr<Executor> make_virtual_executor(std::vector<Pipeline> models, Jitter jitter = {}, Faults faults = {});

}  // namespace sluice

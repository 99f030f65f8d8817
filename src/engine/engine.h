// The coordinator: requests in, tokens out. One loop over the executor's events, whatever the method, the executor or
// the number of requests.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/chance.h"
#include "engine/admission.h"
#include "engine/drafting.h"
#include "engine/figures.h"
#include "engine/lane.h"
#include "engine/means.h"
#include "engine/policy.h"
#include "engine/recorder.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/trace.h"
#include "model/model_file.h"
#include "model/tokenizer.h"
#include "pipeline/executor.h"
#include "verify/constraint.h"

namespace sluice {

// A draft model of the executor's, or a head.
struct DraftOptions {
  std::string name;
  int32_t n_cells = 0, n_stages = 1;
  std::optional<HeadParameters> head;   // if it is one
  std::optional<size_t> shares = {};    // the stage of the target on whose device it runs, a pass at a time
  bool folds = false;                   // HyperParameters::folds()
  std::optional<size_t> cut_back = {};  // how far sequences can be cut back; none: to anywhere
  bool lost_with_target = false;        // a head that is elsewhere, as the target's stages are
};

struct EngineOptions {
  int32_t context = 0;                      // tokens a request may have, prompt and answer
  int32_t n_cells = 0;                      // cells of the target's workers
  std::vector<DraftOptions> drafts;         // the smallest first, then the head if there is one
  bool folds = false;                       // the target: HyperParameters::folds()
  std::optional<size_t> cut_back;           // likewise
  Folding folding;                          // of models that do
  std::shared_ptr<const KnownText> corpus;  // that n-grams know beside the text itself; may be none
  Scheduler::Options scheduler;
  size_t most_waiting = policy::kMostWaiting;  // requests that wait for cells
  std::vector<LayerRange> cuts;                // for the trace
  std::optional<CostModel> cost;               // of the simulated or paced clock
  bool trace = false;
  int64_t first_batch = 0;          // its number
  Choose choose = choose_by_noise;  // how rule `reject` draws guesses
  Constrain constrain;              // what guesses may be where answers are of a grammar; empty: anything
};

// How likely the target held a token and the likeliest ones in its place, before sampling parameters.
struct Logprobs {
  float own = 0.0f;
  std::vector<TokenLogprob> top;  // the likeliest first
};

// New tokens of a request.
struct Progress {
  RequestId request;
  std::vector<Token> tokens;
  Finish finish = Finish::kNone;
  std::vector<Logprobs> logprobs = {};  // of each of the tokens, if the request asks
};

class Engine {
 public:
  Engine(const Tokenizer& tokenizer, std::unique_ptr<Executor> executor, EngineOptions options);

  // A request begins when there are cells for all of its tokens (Admission).
  // Errors: a prompt that is empty or beyond the context or the cells there are, sampling parameters or
  // options of the method out of range, an unknown method or source (kInput); too many requests wait, or the engine has
  // failed (kRuntime).
  Result<RequestId> submit(RequestSpec spec);
  // What submit() says against a request if no other is there.
  Status check_request(const RequestSpec& spec) const;
  // Ends a request before its time; a no-op for a finished one.
  void cancel(RequestId request);
  // Forgets a finished request; its cells are free again, but for those that others share. What `continues` it must
  // come before.
  void release(RequestId request);

  // Whether a request is still running or waits to, or a step has still to say what ended them.
  bool busy() const { return !running_.empty() || waiting() > 0 || untold_ || !progress_.empty(); }
  size_t waiting() const { return admission_.waiting(); }
  // Of all models, those that requests hold; finished ones do until they are released or their cells are needed.
  size_t held_cells() const;
  // The same of the target alone, and how many it has.
  size_t held_target_cells() const { return target().held_cells(); }
  size_t target_cells() const { return static_cast<size_t>(target().n_cells()); }
  // Waits for the next event, handles all that has happened, feeds the first stage. What breaks one request ends that
  // request (Finish::kFailed); when a worker or the engine itself fails, all end, and this error is what every step
  // says once all is told that came before. When stages are lost, requests go on from their tokens to the same ones;
  // if nobody has room for their layers, all end by one error, and what is submitted later looks for stages again.
  // REQUIRES: busy() or a time to wait for, unless it has failed.
  Result<std::vector<Progress>> step();
  // Whether nobody is known to have the layers of stages that were lost. The next submit() looks again.
  bool lacks_stages() const { return !lacking_.empty(); }
  // Looks again without one, and takes in what came of it the last time; waits for neither. Errors: as step().
  // REQUIRES: !busy().
  Status look_for_stages();
  // Asks for a time on the engine's clock to wait for: a step() ends then, at the latest, also when nothing is running.
  void wake_at(double time);

  const Request& request(RequestId id) const { return admission_.find(id); }
  RequestFigures figures(RequestId id) const;
  // Switches how a running request goes on; under rule `match` this never changes its tokens. A head that the request
  // could not ask before knows nothing of the tokens until now, and guesses worse for it.
  Status set_method(RequestId request, const std::string& method, const std::vector<SourceKind>& sources);
  // Tokens a second that a request makes by plain decoding at most, beside no other, by what passes and links were seen
  // to take; none as long as that is not known.
  std::optional<double> plain_rate_at_most() const;
  // Waits until all is heard of what is under way, and forgets what was learnt: what passes and links take, how far
  // guesses are to be believed, whether it pays to ask. The next request is served as the first of a new engine.
  // Errors: as step(). REQUIRES: !busy().
  Status forget();
  // CPU seconds that the coordinator itself has used, and the batches that it composed.
  double coordinator_seconds() const { return coordinator_seconds_; }
  Lookups lookups() const;                        // of all models
  uint64_t out_of_range() const;                  // numbers of the target's states that f16 could not hold
  int64_t batches() const { return n_batches_; }  // of the target
  std::span<const StageClock> stages() const { return target().traffic().stages(); }  // likewise
  double now() const { return executor_->now(); }
  Exactness exactness() const { return executor_->exactness(); }

  // Everything recorded so far; empty unless options.trace.
  Trace trace() const;
  // What a trace of this engine says of it, before any request.
  TraceHeader trace_header() const;
  // Tells what happens to this log from now on; null: to none any more. It must live until then.
  void watch(StepLog* log) { recorder_.watch(log); }

 private:
  void admit();
  Status take_in(bool waits);
  Status handle_all(bool waits);
  Status handle(const Event& event);
  void handle_verdicts(const Outcome& outcome);
  void handle_drafted(const Outcome& outcome);
  void accept(Request& request, const Accepted& accepted);
  void finish(Request& request, Finish finish);
  void fail(Request& request, const std::string& why);
  void end_with(Request& request, const Error& error);
  void fail_all(const Error& error);
  void prune(Request& request, const std::vector<NodeId>& nodes, Fate fate);
  void tell_dead();
  void start_over(ModelId model);
  void read_anew(Lane& draft);
  void give_up(const StagesLost& lost);
  void ask_for_stages();
  void no_longer_lacks(ModelId model);
  void feed();
  bool feed_idle();
  void send(Lane& lane, const std::vector<Planned>& plan);
  Lane& lane_of(ModelId model);
  Lane& target() { return lanes_.front(); }
  const Lane& target() const { return lanes_.front(); }

  const Tokenizer* tokenizer_;
  std::unique_ptr<Executor> executor_;
  EngineOptions options_;
  MeansAtHand means_;
  Drafting drafting_;
  Scheduler scheduler_;
  std::vector<Lane> lanes_;  // by model
  Admission admission_;
  Recorder recorder_;
  std::vector<Request*> running_;   // by arrival
  std::vector<Progress> progress_;  // since the last step
  Trust guesses_;                   // of all requests
  std::optional<Error> failed_;     // what ended the engine,
  bool untold_ = false;             // and the next step says
  // Of models for whose layers nobody had room; none: all are there.
  struct Lacking {
    StagesLost stages;
    bool asked = false;  // for others
  };
  std::vector<Lacking> lacking_;
  int64_t next_batch_ = 0;
  int64_t n_batches_ = 0;
  double coordinator_seconds_ = 0;
  std::optional<double> wake_;  // when the executor will tell that a time has come that was asked for
};

}  // namespace sluice

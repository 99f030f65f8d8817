// The coordinator: requests in, tokens out. One loop over the executor's events, whatever the method, the executor or
// the number of requests.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/chance.h"
#include "engine/lane.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "engine/trace.h"
#include "model/model_file.h"
#include "model/tokenizer.h"
#include "pipeline/executor.h"

namespace sluice {

// A draft model of the executor's, or a head.
struct DraftOptions {
  std::string name;
  int32_t n_cells = 0, n_stages = 1;
  std::optional<HeadParameters> head;  // if it is one
};

struct EngineOptions {
  int32_t context = 0;                      // tokens a request may have, prompt and answer
  int32_t n_cells = 0;                      // cells of the target's workers
  std::vector<DraftOptions> drafts;         // the smallest first, then the head if there is one
  std::shared_ptr<const KnownText> corpus;  // that n-grams know beside the text itself; may be none
  Scheduler::Options scheduler;
  size_t most_waiting = 1024;     // requests that wait for cells
  std::vector<LayerRange> cuts;   // for the trace
  std::optional<CostModel> cost;  // of the simulated or paced clock
  bool trace = false;
  int64_t first_batch = 0;          // its number
  Choose choose = choose_by_noise;  // how rule `reject` draws guesses
};

// New tokens of a request.
struct Progress {
  RequestId request;
  std::vector<Token> tokens;
  Finish finish = Finish::kNone;
};

// What a request did, derived from counts and times (INTERFACE: `sluice run --json`).
struct RequestFigures {
  double prefill_seconds = 0, decode_seconds = 0;
  double tokens_per_second = 0;             // tokens after the first over decode_seconds
  double steps = 0;                         // K: decode time over the time of the slowest stage at width 1
  double equivalent_acceptance_length = 0;  // SPD eq. (4): n N / K
  std::vector<double> stage_utilisation;    // busy share while decoding
};

class Engine {
 public:
  Engine(const Tokenizer& tokenizer, std::unique_ptr<Executor> executor, EngineOptions options);

  // A request begins when there are cells for all of its tokens, in the order of submission; until then it waits. What
  // finished requests still hold for those that continue them is given up for it, the oldest first.
  // Errors: a prompt that is empty or beyond the context or the cells there are, sampling parameters or
  // options of the method out of range, an unknown method or source (kInput); too many requests wait, or the engine has
  // failed (kRuntime).
  Result<RequestId> submit(RequestSpec spec);
  // What submit() says against a request if no other is there.
  Status check_request(const RequestSpec& spec) const;
  // Ends a request before its time; a no-op for a finished one.
  void cancel(RequestId request);
  // Forgets a finished request; its cells are free again. What `continues` it must come before.
  void release(RequestId request);

  // Whether a request is still running or waits to.
  bool busy() const { return !running_.empty() || !waiting_.empty(); }
  size_t waiting() const { return waiting_.size(); }
  // Waits for the next event, handles all that has happened, feeds the first stage. What breaks one request ends that
  // request (Finish::kFailed); when a worker or the engine itself fails, all end, and this error is what every later
  // step says. REQUIRES: busy() or a time to wait for, unless it has failed.
  Result<std::vector<Progress>> step();
  // Asks for a time on the engine's clock to wait for: a step() ends then, at the latest, also when nothing is running.
  void wake_at(double time);

  const Request& request(RequestId id) const;
  RequestFigures figures(RequestId id) const;
  // Switches how a running request goes on; under rule `match` this never changes its tokens. A head that the request
  // could not ask before knows nothing of the tokens until now, and guesses worse for it.
  Status set_method(RequestId request, const std::string& method, const std::vector<SourceKind>& sources);
  // CPU seconds that the coordinator itself has used, and the batches that it composed.
  double coordinator_seconds() const { return coordinator_seconds_; }
  int64_t batches() const { return n_batches_; }  // of the target
  double now() const { return executor_->now(); }
  Exactness exactness() const { return executor_->exactness(); }

  // Everything recorded so far; empty unless options.trace.
  Trace trace() const;

 private:
  // What serves a request.
  struct Means {
    ActiveMethod method;
    std::vector<SourceSlot> sources;
  };
  Result<Means> means_for(const RequestSpec& spec) const;
  // How many tokens of a finished request each model need not compute again for a prompt that goes on from it.
  std::vector<size_t> kept_of(const Request& previous, std::span<const Token> prompt,
                              std::span<const SourceSlot> sources) const;
  SourcesAtHand sources_at_hand() const;
  Status check_head(const ActiveMethod& method) const;
  void take_sources(Request& request, std::vector<SourceSlot> slots);
  Status check_room(size_t cells) const;
  void admit();
  bool make_room(const Request& request);
  void begin(Request& request);
  void go_on(Request& request, Request& previous);
  void give_up_cells(Request& request);
  Status handle_all();
  Status handle(const Event& event);
  void handle_report(const StageReport& report);
  void handle_verdicts(const Outcome& outcome);
  void handle_drafted(const Outcome& outcome);
  void take_guesses(Request& request, size_t source, NodeId node, const Drafted& drafted);
  void answer_with_draws(Request& request, size_t source, NodeId node, std::vector<Candidate> q);
  Progress& progress_of(const Request& request);
  void accept(Request& request, const Accepted& accepted);
  void finish(Request& request, Finish finish);
  void fail(Request& request, const std::string& why);
  void fail_all(const Error& error);
  void prune(Request& request, const std::vector<NodeId>& nodes, Fate fate);
  void count_promised(Request& request);
  void feed();
  bool feed_idle();
  void send(Lane& lane, const std::vector<Planned>& plan);
  std::optional<double> news_due() const;
  void tell_children(const std::vector<Planned>& plan, Batch& batch);
  void add_row(Lane& lane, const Planned& planned, Batch& batch);
  bool asks_head(const Request& request) const;
  bool is_quiet(const Lane& lane) const;
  void resolve(const Resident& resident, Fate fate);
  Lane& target() { return lanes_.front(); }
  const Lane& target() const { return lanes_.front(); }
  Request& find(RequestId id);

  const Tokenizer* tokenizer_;
  std::unique_ptr<Executor> executor_;
  EngineOptions options_;
  Scheduler scheduler_;
  std::vector<Lane> lanes_;  // by model
  size_t reserved_ = 0;      // cells of every model that belong to requests: committed tokens, roots and those to come
  std::map<RequestId, Request> requests_;
  std::vector<Request*> running_;                              // by arrival
  std::deque<Request*> waiting_;                               // for cells, by arrival
  std::vector<Progress> progress_;                             // since the last step
  Trust guesses_;                                              // of all requests
  std::optional<Error> failed_;                                // what ended the engine
  std::map<SequenceId, Request*> by_sequence_;                 // the request that speaks for it
  std::map<RequestId, std::vector<StageClock>> decode_begin_;  // the target's clocks when the first token came
  std::map<RequestId, std::vector<StageClock>> decode_end_;
  int32_t next_request_ = 0, next_sequence_ = 0;
  int64_t next_batch_ = 0;
  int64_t n_batches_ = 0;
  double coordinator_seconds_ = 0;
  std::optional<double> wake_;  // when the executor will tell that a time has come that was asked for
  Trace trace_;
};

}  // namespace sluice

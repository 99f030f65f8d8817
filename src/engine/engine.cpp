#include "engine/engine.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "engine/policy.h"

namespace sluice {

namespace {

// Adds the CPU time of the enclosing scope, of this thread, to a total: without that of reading the clock, a system
// call, which beside short scopes is no little.
class CpuTimer {
 public:
  explicit CpuTimer(double& total) : total_(total), begin_(now()) {}
  ~CpuTimer() { total_ += std::max(0.0, now() - begin_ - reading()); }

 private:
  // The least of some.
  static double reading() {
    static const double seconds = [] {
      double least = 1.0;
      for (int i = 0; i < 64; ++i) {
        const double begin = now();
        least = std::min(least, now() - begin);
      }
      return least;
    }();
    return seconds;
  }
  static double now() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  double& total_;
  double begin_;
};

std::vector<size_t> stages_of(const EngineOptions& options) {
  std::vector<size_t> n = {options.cuts.size()};
  for (const DraftOptions& draft : options.drafts) n.push_back(static_cast<size_t>(draft.n_stages));
  return n;
}

std::vector<Lane> lanes_of(const EngineOptions& options) {
  std::vector<Lane> lanes;
  lanes.emplace_back(kTarget, options.n_cells, options.cuts.size());
  if (options.folds) lanes.front().fold(options.folding);
  if (options.cut_back) lanes.front().limit_cuts(*options.cut_back);
  if (options.cost) lanes.front().traffic().foresee_prompts(*options.cost);
  for (const DraftOptions& draft : options.drafts) {
    lanes.emplace_back(ModelId(static_cast<int32_t>(lanes.size())), draft.n_cells, static_cast<size_t>(draft.n_stages));
    if (draft.folds) lanes.back().fold(options.folding);
    if (draft.cut_back) lanes.back().limit_cuts(*draft.cut_back);
    if (draft.head) lanes.back().add_head({*draft.head, options.cuts});
    if (draft.shares) lanes.back().share(*draft.shares);
    if (draft.lost_with_target) lanes.back().lose_with_target();
  }
  return lanes;
}

MeansAtHand means_of(const EngineOptions& options) {
  const bool has_head = !options.drafts.empty() && options.drafts.back().head;
  return {options.drafts.size() - has_head, has_head ? std::optional(options.drafts.back().head->kind) : std::nullopt,
          options.corpus};
}

}  // namespace

Engine::Engine(const Tokenizer& tokenizer, std::unique_ptr<Executor> executor, EngineOptions options)
    : tokenizer_(&tokenizer),
      executor_(std::move(executor)),
      options_(std::move(options)),
      means_(means_of(options_)),
      drafting_(static_cast<size_t>(options_.scheduler.row_budget), options_.choose),
      scheduler_(options_.scheduler),
      lanes_(lanes_of(options_)),
      admission_(lanes_, options_.most_waiting),
      recorder_(options_.trace, BatchId(options_.first_batch), tokenizer, stages_of(options_)),
      next_batch_(options_.first_batch) {}

Result<RequestId> Engine::submit(RequestSpec spec) {
  if (failed_) return tl::unexpected<Error>(*failed_);
  SLUICE_TRY_STATUS(check(spec, options_.context, tokenizer_->size()));
  SLUICE_TRY(auto means, means_.find(spec.method, spec.method_options, spec.sources, spec.sampling.rule));
  const size_t cells =
      std::min(spec.prompt.size() + static_cast<size_t>(spec.max_tokens), static_cast<size_t>(options_.context));
  SLUICE_TRY_STATUS(admission_.check_room(cells));
  if (!busy()) SLUICE_TRY_STATUS(take_in(/*waits=*/false));  // what was lost meanwhile is not this one's loss
  ask_for_stages();
  Request& request = admission_.add(std::move(spec), cells);
  request.take(std::move(means));
  if (const AnswerGrammar& grammar = request.spec.sampling.grammar; options_.constrain && !grammar.empty())
    request.guide = std::make_unique<Guide>(options_.constrain(grammar));
  request.stats.submitted = executor_->now();
  admit();
  feed();
  return request.id;
}

Status Engine::check_request(const RequestSpec& spec) const {
  SLUICE_TRY_STATUS(check(spec, options_.context, tokenizer_->size()));
  SLUICE_TRY([[maybe_unused]] const auto means,
             means_.find(spec.method, spec.method_options, spec.sources, spec.sampling.rule));
  return {};
}

void Engine::cancel(RequestId id) {
  Request& request = admission_.find(id);
  if (request.finish != Finish::kNone) return;
  if (!request.sequence.valid()) admission_.withdraw(request);
  if (!request.has_begun()) return void(request.finish = Finish::kCancelled);
  finish(request, Finish::kCancelled);
  tell_dead();
}

void Engine::release(RequestId id) {
  admission_.release(id);
  if (failed_) return;
  admit();
  feed();
}

size_t Engine::held_cells() const {
  size_t cells = 0;
  for (const Lane& lane : lanes_) cells += lane.held_cells();
  return cells;
}

Status Engine::set_method(RequestId id, const std::string& method, const std::vector<SourceKind>& sources) {
  Request& request = admission_.find(id);
  SLUICE_TRY(auto means, means_.find(method, request.spec.method_options, sources, request.spec.sampling.rule));
  request.take(std::move(means));
  // The draft models forget the tree, so that they can be asked again for what they told the other method.
  for (Lane& lane : std::span(lanes_).subspan(1)) lane.forget_nodes(request);
  admission_.count_promised(request);
  return {};
}

Status Engine::forget() {
  SLUICE_CHECK(!busy(), "requests that run go on by what was learnt");
  if (failed_) return tl::unexpected<Error>(*failed_);
  const auto settled = [](const Lane& lane) { return lane.traffic().is_settled(); };
  while (!std::ranges::all_of(lanes_, settled)) SLUICE_TRY_STATUS(take_in(/*waits=*/true));
  for (Lane& lane : lanes_) lane.traffic().forget();
  drafting_.forget();
  scheduler_ = Scheduler(options_.scheduler);
  guesses_ = {};
  return {};
}

void Engine::wake_at(double time) {
  if (wake_ && *wake_ <= time) return;
  executor_->wake_at(time);
  wake_ = time;
}

Result<std::vector<Progress>> Engine::step() {
  untold_ = false;
  if (failed_) return tl::unexpected<Error>(*failed_);
  SLUICE_CHECK(busy() || wake_, "a step needs a running request or a time to wait for");
  const Status done = take_in(/*waits=*/progress_.empty());
  if (!done && progress_.empty()) return tl::unexpected<Error>(done.error());
  untold_ = !done;  // what was said just before goes first
  return std::exchange(progress_, {});
}

// Handles all that has happened; waits for something first.
Status Engine::take_in(bool waits) {
  Status done;
  try {
    done = handle_all(waits);
  } catch (const std::exception& error) {
    done = runtime_error(error.what());
  }
  if (!done) fail_all(done.error());
  return done;
}

Status Engine::handle_all(bool waits) {
  std::vector<Event> events;
  if (waits) events.push_back(executor_->next());
  while (auto more = executor_->poll()) events.push_back(std::move(*more));
  constexpr double kClockTick = 1e-6;  // a real clock may round the time down
  if (wake_ && *wake_ <= executor_->now() + kClockTick) wake_.reset();
  const CpuTimer timer(coordinator_seconds_);
  for (const Event& event : events) SLUICE_TRY_STATUS(handle(event));
  tell_dead();
  admit();
  feed();
  return {};
}

// Lets begin who waits, in the order of arrival, as far as there are cells.
void Engine::admit() {
  while (admission_.waiting() > 0) {
    Request* const request = admission_.next();
    if (request == nullptr) {
      if (!running_.empty()) return;  // when one of them ends
      fail(admission_.drop_first(),
           "the cells that it needs were held by requests that broke: start the program again");
      continue;
    }
    if (!request->has_begun()) {
      for (const SourceSlot& slot : request->sources)
        if (slot.local) slot.local->observe(request->tokens);
      request->trust_before = guesses_.share(policy::kFirstTrust);
    }
    request->first_batch = BatchId(next_batch_);
    running_.push_back(request);
  }
}

RequestFigures Engine::figures(RequestId id) const {
  return figures_of(request(id), target().traffic().stages(), options_.cost ? &*options_.cost : nullptr);
}

std::optional<double> Engine::plain_rate_at_most() const {
  const auto seconds = target().traffic().least_transit();
  return seconds && *seconds > 0.0 ? std::optional(1.0 / *seconds) : std::nullopt;
}

Trace Engine::trace() const {
  Trace trace = recorder_.trace();
  trace.header = trace_header();
  return trace;
}

TraceHeader Engine::trace_header() const {
  TraceHeader header;
  for (const LayerRange& cut : options_.cuts) header.cuts.emplace_back(cut.first, cut.last);
  header.stages = static_cast<int32_t>(options_.cuts.size());
  for (const DraftOptions& draft : options_.drafts)
    for (int32_t s = 0; s < draft.n_stages; ++s)
      header.drafts.push_back("draft" + (options_.drafts.size() > 1 ? " " + draft.name : "") +
                              (draft.n_stages > 1 ? " stage " + std::to_string(s) : ""));
  header.executor = executor_->name();
  header.simulated = executor_->simulated();
  if (options_.cost) header.profile = options_.cost->profile().name;
  return header;
}

}  // namespace sluice

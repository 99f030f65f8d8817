#include "engine/engine.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "method/option_table.h"
#include "source/make_source.h"
#include "source/ngram.h"

namespace sluice {

namespace {

// Adds the CPU time of the enclosing scope, of this thread, to a total.
class CpuTimer {
 public:
  explicit CpuTimer(double& total) : total_(total), begin_(now()) {}
  ~CpuTimer() { total_ += now() - begin_; }

 private:
  static double now() {
    timespec t{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  double& total_;
  double begin_;
};

// Whether the rule is defined for the method's trees: whether their guesses can be drawn.
Status check_rule(const SamplingParams& sampling, const ActiveMethod& method) {
  if (sampling.rule != Rule::kReject || !method.traits.speculates || method.traits.draws > 0) return {};
  return input_error("--verify reject needs guesses that are drawn from the source's distribution, but the models of " +
                     std::string(method.name) + " pass on their likeliest tokens; take --verify match for it");
}

// A method's sources.
Result<std::vector<SourceSlot>> sources_of(const MethodTraits& method, Rule rule, const std::vector<SourceKind>& asked,
                                           const SourcesAtHand& at_hand) {
  // What a draft model and n-grams say together is ranked, so nothing is drawn unless the model is alone.
  const bool wants_text = method.wants_text && rule != Rule::kReject;
  SLUICE_TRY(auto sources, make_sources(asked, at_hand, method.has_hierarchy, method.head.has_value(), wants_text));
  if (method.has_fallback && sources.front().draft)
    sources.push_back({std::make_unique<NgramSource>(at_hand.corpus), std::nullopt});
  return sources;
}

}  // namespace

Engine::Engine(const Tokenizer& tokenizer, std::unique_ptr<Executor> executor, EngineOptions options)
    : tokenizer_(&tokenizer),
      executor_(std::move(executor)),
      options_(std::move(options)),
      scheduler_(options_.scheduler),
      next_batch_(options_.first_batch) {
  lanes_.emplace_back(kTarget, options_.n_cells, options_.cuts.size());
  for (const DraftOptions& draft : options_.drafts) {
    lanes_.emplace_back(ModelId(static_cast<int32_t>(lanes_.size())), draft.n_cells,
                        static_cast<size_t>(draft.n_stages));
    if (draft.head) lanes_.back().head.emplace(*draft.head, options_.cuts);
  }
}

Request& Engine::find(RequestId id) {
  const auto at = requests_.find(id);
  SLUICE_CHECK(at != requests_.end(), "no such request");
  return at->second;
}

const Request& Engine::request(RequestId id) const { return const_cast<Engine*>(this)->find(id); }

Result<Engine::Means> Engine::means_for(const RequestSpec& spec) const {
  if (spec.prompt.empty()) return input_error("the prompt is empty: it must give at least one token");
  if (spec.prompt.size() >= static_cast<size_t>(options_.context))
    return input_error("the prompt has " + std::to_string(spec.prompt.size()) +
                       " tokens, which leaves no room for an answer in a context of " +
                       std::to_string(options_.context) + " (--context)");
  if (spec.max_tokens < 1) return input_error("--max-tokens must be at least 1");
  for (const Token token : spec.prompt)
    if (token < 0 || token >= tokenizer_->size())
      return input_error("the prompt holds token " + std::to_string(token) + "; the model's ids go from 0 to " +
                         std::to_string(tokenizer_->size() - 1));
  SLUICE_TRY_STATUS(check(spec.sampling, tokenizer_->size()));
  SLUICE_TRY_STATUS(check(spec.method_options));
  Means means;
  SLUICE_TRY(means.method, make_method(spec.method, spec.method_options));
  SLUICE_TRY_STATUS(check_rule(spec.sampling, means.method));
  SLUICE_TRY_STATUS(check_head(means.method));
  if (means.method.traits.speculates) {
    SLUICE_TRY(means.sources, sources_of(means.method.traits, spec.sampling.rule, spec.sources, sources_at_hand()));
  }
  return means;
}

Status Engine::check_request(const RequestSpec& spec) const {
  SLUICE_TRY([[maybe_unused]] const auto means, means_for(spec));
  return {};
}

SourcesAtHand Engine::sources_at_hand() const {
  const bool head = !options_.drafts.empty() && options_.drafts.back().head;
  return {.n_drafts = options_.drafts.size() - head, .head = head, .corpus = options_.corpus};
}

// A method that needs a head needs one of its own kind.
Status Engine::check_head(const ActiveMethod& method) const {
  const auto& head = method.traits.head;
  if (!head) return {};
  const std::string wants =
      "--method " + std::string(method.name) + " needs a trained head of kind " + sluice::name(*head);
  if (!sources_at_hand().head) return input_error(wants + ": give it with --head FILE");
  const HeadKind kind = options_.drafts.back().head->kind;
  if (kind != *head) return input_error(wants + "; --head gives one of kind " + sluice::name(kind));
  return {};
}

Status Engine::set_method(RequestId id, const std::string& method, const std::vector<SourceKind>& sources) {
  Request& request = find(id);
  SLUICE_TRY(auto next, make_method(method, request.spec.method_options));
  SLUICE_TRY_STATUS(check_rule(request.spec.sampling, next));
  SLUICE_TRY_STATUS(check_head(next));
  if (next.traits.speculates) {
    SLUICE_TRY(auto slots, sources_of(next.traits, request.spec.sampling.rule, sources, sources_at_hand()));
    take_sources(request, std::move(slots));
  }
  // The draft models forget the tree, so that they can be asked again for what they told the other method.
  for (Lane& lane : std::span(lanes_).subspan(1)) {
    Residency& there = request.residency(lane.model);
    for (const Cell cell : there.cells()) lane.cells.give_back(request.sequence, cell);
    there.clear();
  }
  request.method = std::move(next);
  request.passed_over.reset();
  count_promised(request);
  return {};
}

// Its sources from now on. What has read the text already goes on in place of what would have to read it.
void Engine::take_sources(Request& request, std::vector<SourceSlot> slots) {
  std::unique_ptr<Source> reader;
  for (SourceSlot& old : request.sources)
    if (old.local) reader = std::move(old.local);
  for (SourceSlot& slot : slots) {
    if (!slot.local) continue;
    if (reader)
      slot.local = std::move(reader);
    else if (request.sequence.valid())  // else it will, when it begins
      slot.local->observe(request.tokens);
  }
  request.sources = std::move(slots);
  request.speculation.n_sources = request.sources.size();
}

void Engine::wake_at(double time) {
  if (wake_ && *wake_ <= time) return;
  executor_->wake_at(time);
  wake_ = time;
}

Result<std::vector<Progress>> Engine::step() {
  if (failed_) return tl::unexpected<Error>(*failed_);
  SLUICE_CHECK(busy() || wake_, "a step needs a running request or a time to wait for");
  Status done;
  try {
    done = handle_all();
  } catch (const std::exception& error) {
    done = runtime_error(error.what());
  }
  if (done) return std::exchange(progress_, {});
  fail_all(done.error());
  return tl::unexpected<Error>(*failed_);
}

Status Engine::handle_all() {
  std::vector<Event> events = {executor_->next()};
  while (auto more = executor_->poll()) events.push_back(std::move(*more));
  constexpr double kClockTick = 1e-6;  // a real clock may round the time down
  if (wake_ && *wake_ <= executor_->now() + kClockTick) wake_.reset();
  const CpuTimer timer(coordinator_seconds_);
  for (const Event& event : events) SLUICE_TRY_STATUS(handle(event));
  admit();
  feed();
  return {};
}

// Its state may contradict itself, so nothing that it held is given to others, and nothing is said of it any more.
void Engine::fail(Request& request, const std::string& why) {
  request.finish = Finish::kFailed;
  request.error = {ErrorKind::kRuntime, "request " + std::to_string(request.id.value) + " failed: " + why};
  decode_end_[request.id] = target().stages;
  count_promised(request);
  std::erase(running_, &request);
  progress_of(request).finish = Finish::kFailed;
}

void Engine::fail_all(const Error& error) {
  failed_ = error;
  running_.insert(running_.end(), waiting_.begin(), waiting_.end());
  for (Request* request : running_) {
    request->finish = Finish::kFailed;
    request->error = error;
  }
  running_.clear();
  waiting_.clear();
}

RequestFigures Engine::figures(RequestId id) const {
  const Request& request = this->request(id);
  const RequestStats& stats = request.stats;
  RequestFigures figures;
  const double n = static_cast<double>(target().stages.size()), tokens = static_cast<double>(request.n_answer()) - 1;
  if (tokens < 0) return figures;
  figures.prefill_seconds = stats.first_token - stats.submitted;
  figures.decode_seconds = stats.last_token - stats.first_token;
  if (figures.decode_seconds <= 0) return figures;
  figures.tokens_per_second = tokens / figures.decode_seconds;
  const auto& begin = decode_begin_.at(id);
  const auto& end = decode_end_.contains(id) ? decode_end_.at(id) : target().stages;
  double slowest = 0;
  for (size_t s = 0; s < target().stages.size(); ++s) {
    const double busy = end[s].busy - begin[s].busy;
    const double batches = static_cast<double>(end[s].batches - begin[s].batches);
    figures.stage_utilisation.push_back(std::min(1.0, busy / figures.decode_seconds));
    if (batches > 0) slowest = std::max(slowest, busy / batches);
  }
  // Without a cost model the time of the slowest stage is taken as measured, at whatever width it ran.
  if (options_.cost) slowest = options_.cost->step_seconds();
  if (slowest > 0) figures.steps = figures.decode_seconds / slowest;
  if (figures.steps > 0) figures.equivalent_acceptance_length = n * tokens / figures.steps;
  return figures;
}

Trace Engine::trace() const {
  Trace trace = trace_;
  for (const LayerRange& cut : options_.cuts) trace.header.cuts.emplace_back(cut.first, cut.last);
  trace.header.stages = static_cast<int32_t>(options_.cuts.size());
  for (const DraftOptions& draft : options_.drafts)
    for (int32_t s = 0; s < draft.n_stages; ++s)
      trace.header.drafts.push_back("draft" + (options_.drafts.size() > 1 ? " " + draft.name : "") +
                                    (draft.n_stages > 1 ? " stage " + std::to_string(s) : ""));
  trace.header.executor = executor_->name();
  trace.header.simulated = executor_->simulated();
  if (options_.cost) trace.header.profile = options_.cost->profile().name;
  return trace;
}

}  // namespace sluice

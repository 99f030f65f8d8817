#include "engine/engine.h"

#include <time.h>

#include <algorithm>

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

// Whether the rule is defined for the method's trees.
Status check_rule(const SamplingParams& sampling, const Method& method) {
  if (sampling.rule != Rule::kReject || !method.speculates() || method.draws() > 0) return {};
  return input_error(
      "--verify reject is defined for ar, sd, specinfer and eagle3 without --tree-nodes, p-eagle, ssd, and spd and "
      "ppsd with --width 1, whose guesses can be drawn from the source's distribution and enter together; " +
      std::string(method.name()) + " needs --verify match");
}

// A method's sources, by their names.
Result<std::vector<SourceSlot>> sources_of(const Method& method, const std::vector<std::string>& names,
                                           const SourcesAtHand& at_hand) {
  SLUICE_TRY(auto sources,
             make_sources(names, at_hand, method.has_hierarchy(), method.head().has_value(), method.wants_text()));
  if (method.has_fallback() && sources.front().draft)
    sources.push_back({std::make_unique<NgramSource>(at_hand.corpus), std::nullopt});
  return sources;
}

}  // namespace

Engine::Engine(const Tokenizer& tokenizer, std::unique_ptr<Executor> executor, EngineOptions options)
    : tokenizer_(&tokenizer),
      executor_(std::move(executor)),
      options_(std::move(options)),
      scheduler_(options_.scheduler) {
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
  Means means;
  SLUICE_TRY(means.method, make_method(spec.method, spec.method_options));
  SLUICE_TRY_STATUS(check_rule(spec.sampling, *means.method));
  SLUICE_TRY_STATUS(check_head(*means.method));
  if (means.method->speculates()) {
    SLUICE_TRY(means.sources, sources_of(*means.method, spec.sources, sources_at_hand()));
  }
  return means;
}

Status Engine::check_request(const RequestSpec& spec) const {
  SLUICE_TRY([[maybe_unused]] const auto means, means_for(spec));
  return {};
}

Result<RequestId> Engine::submit(RequestSpec spec) {
  SLUICE_TRY(auto means, means_for(spec));
  const size_t reserved =
      std::min(spec.prompt.size() + static_cast<size_t>(spec.max_tokens), static_cast<size_t>(options_.context));
  Request* previous = spec.continues ? &find(*spec.continues) : nullptr;
  SLUICE_CHECK(previous == nullptr || previous->finish != Finish::kNone, "only a finished request can be continued");
  const size_t others = reserved_ - (previous ? previous->reserved_cells : 0);
  for (const Lane& lane : lanes_)
    if (others + reserved > static_cast<size_t>(lane.n_cells))
      return input_error("no room for a request of " + std::to_string(reserved) +
                         " tokens beside those that are there: the KV cache has " + std::to_string(lane.n_cells) +
                         " cells, " + std::to_string(others) + " of them taken");
  reserved_ = others + reserved;
  const RequestId id(next_request_++);
  auto& request =
      requests_.try_emplace(id, id, previous ? previous->sequence : SequenceId(next_sequence_++), std::move(spec))
          .first->second;
  request.speculation.drafts.resize(options_.drafts.size());
  if (previous == nullptr) {
    for (Lane& lane : lanes_) lane.updates.push_back(Open{request.sequence, request.spec.sampling});
  } else {
    const std::vector<size_t> keeps = kept_of(*previous, request.spec.prompt, means.sources);
    for (Lane& lane : lanes_) {
      auto& there = previous->residency(lane.model).committed;
      const size_t kept = keeps[static_cast<size_t>(lane.model.value)];
      for (size_t i = kept; i < there.size(); ++i) lane.cells.give_back(request.sequence, there[i]);
      there.resize(kept);
      request.residency(lane.model).committed = std::move(there);
      request.residency(lane.model).settled = std::min(kept, previous->residency(lane.model).settled);
      lane.updates.push_back(Truncate{request.sequence, static_cast<int32_t>(kept), request.spec.sampling});
    }
    request.stats.reused_tokens = static_cast<int64_t>(request.speculation.target.committed.size());
    decode_begin_.erase(previous->id);
    decode_end_.erase(previous->id);
    requests_.erase(previous->id);
  }
  by_sequence_[request.sequence] = &request;
  request.reserved_cells = reserved;
  request.first_batch = BatchId(next_batch_);
  request.method = std::move(means.method);
  request.sources = std::move(means.sources);
  request.speculation.n_sources = request.sources.size();
  for (const SourceSlot& slot : request.sources)
    if (slot.local) slot.local->observe(request.tokens);
  request.speculation.last_position = static_cast<int32_t>(reserved) - 2;  // a token drawn there is the last
  request.stats.submitted = executor_->now();
  running_.push_back(&request);
  feed();
  return id;
}

std::vector<size_t> Engine::kept_of(const Request& previous, std::span<const Token> prompt,
                                    std::span<const SourceSlot> sources) const {
  std::vector<size_t> kept;
  for (const Lane& lane : lanes_) {
    // The prompt's last token becomes the root, so it is computed again in any case.
    const size_t limit = std::min(previous.residency(lane.model).committed.size(), prompt.size() - 1);
    const auto end = prompt.begin() + static_cast<ptrdiff_t>(limit);
    kept.push_back(
        static_cast<size_t>(std::mismatch(prompt.begin(), end, previous.tokens.begin()).first - prompt.begin()));
  }
  for (const SourceSlot& slot : sources)
    if (const size_t model = slot.draft ? *slot.draft + 1 : 0; model > 0 && lanes_[model].head)
      kept[0] = std::min(kept[0], lanes_[model].head->target_keeps(kept[model]));
  return kept;
}

SourcesAtHand Engine::sources_at_hand() const {
  const bool head = !options_.drafts.empty() && options_.drafts.back().head;
  return {.n_drafts = options_.drafts.size() - head, .head = head, .corpus = options_.corpus};
}

// A method that needs a head needs one of its own kind.
Status Engine::check_head(const Method& method) const {
  if (!method.head()) return {};
  const std::string wants =
      "--method " + std::string(method.name()) + " needs a trained head of kind " + sluice::name(*method.head());
  if (!sources_at_hand().head) return input_error(wants + ": give it with --head FILE");
  const HeadKind kind = options_.drafts.back().head->kind;
  if (kind != *method.head()) return input_error(wants + "; --head gives one of kind " + sluice::name(kind));
  return {};
}

Status Engine::set_method(RequestId id, const std::string& method, const std::vector<std::string>& sources) {
  Request& request = find(id);
  SLUICE_TRY(auto next, make_method(method, request.spec.method_options));
  SLUICE_TRY_STATUS(check_rule(request.spec.sampling, *next));
  SLUICE_TRY_STATUS(check_head(*next));
  if (next->speculates() && (request.sources.empty() || next->has_hierarchy() != request.method->has_hierarchy())) {
    SLUICE_TRY(request.sources, sources_of(*next, sources, sources_at_hand()));
    for (const SourceSlot& slot : request.sources)
      if (slot.local) slot.local->observe(request.tokens);
    request.speculation.n_sources = request.sources.size();
  }
  // The draft models forget the tree, so that they can be asked again for what they told the other method.
  for (Lane& lane : std::span(lanes_).subspan(1)) {
    Residency& there = request.residency(lane.model);
    for (const auto& [node, resident] : there) lane.cells.give_back(request.sequence, resident.cell);
    there.clear();
  }
  request.method = std::move(next);
  return {};
}

void Engine::cancel(RequestId id) {
  Request& request = find(id);
  if (request.finish == Finish::kNone) finish(request, Finish::kCancelled);
}

void Engine::release(RequestId id) {
  Request& request = find(id);
  SLUICE_CHECK(request.finish != Finish::kNone, "only a finished request can be released");
  for (Lane& lane : lanes_) {
    for (const Cell cell : request.residency(lane.model).committed) lane.cells.give_back(request.sequence, cell);
    lane.cells.close(request.sequence);
    lane.updates.push_back(Close{request.sequence});
  }
  reserved_ -= request.reserved_cells;
  by_sequence_.erase(request.sequence);
  decode_begin_.erase(id);
  decode_end_.erase(id);
  requests_.erase(id);
}

Result<std::vector<Progress>> Engine::step() {
  SLUICE_CHECK(busy(), "a step needs a running request");
  std::vector<Event> events = {executor_->next()};
  while (auto more = executor_->poll()) events.push_back(std::move(*more));
  const CpuTimer timer(coordinator_seconds_);
  std::vector<Progress> progress;
  for (const Event& event : events) SLUICE_TRY_STATUS(handle(event, progress));
  feed();
  return progress;
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

#include "engine/engine.h"

#include <time.h>

#include <algorithm>

#include "source/make_source.h"

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

}  // namespace

Engine::Engine(const Tokenizer& tokenizer, std::unique_ptr<Executor> executor, EngineOptions options)
    : tokenizer_(&tokenizer),
      executor_(std::move(executor)),
      options_(std::move(options)),
      scheduler_(options_.scheduler),
      cells_(options_.n_cells),
      stages_(options_.cuts.size()) {}

Request& Engine::find(RequestId id) {
  const auto at = requests_.find(id);
  SLUICE_CHECK(at != requests_.end(), "no such request");
  return at->second;
}

const Request& Engine::request(RequestId id) const { return const_cast<Engine*>(this)->find(id); }

Result<RequestId> Engine::submit(RequestSpec spec) {
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
  SLUICE_TRY(auto method, make_method(spec.method, spec.method_options));
  std::unique_ptr<Source> source;
  if (method->speculates()) {
    SLUICE_TRY(source, make_source(spec.sources));
  }

  const size_t reserved =
      std::min(spec.prompt.size() + static_cast<size_t>(spec.max_tokens), static_cast<size_t>(options_.context));
  Request* previous = spec.continues ? &find(*spec.continues) : nullptr;
  SLUICE_CHECK(previous == nullptr || previous->finish != Finish::kNone, "only a finished request can be continued");
  const size_t others = reserved_ - (previous ? previous->reserved_cells : 0);
  if (others + reserved > static_cast<size_t>(options_.n_cells))
    return input_error("no room for a request of " + std::to_string(reserved) +
                       " tokens beside those that are there: the KV cache has " + std::to_string(options_.n_cells) +
                       " cells, " + std::to_string(others) + " of them taken");
  reserved_ = others + reserved;
  const RequestId id(next_request_++);
  auto& request =
      requests_.try_emplace(id, id, previous ? previous->sequence : SequenceId(next_sequence_++), std::move(spec))
          .first->second;
  if (previous == nullptr) {
    updates_.push_back(Open{request.sequence, request.spec.sampling});
  } else {
    // The prompt's last token becomes the root, so it is computed again in any case.
    const size_t limit = std::min(previous->cells.size(), request.n_prompt() - 1);
    const auto& prompt = request.spec.prompt;
    const size_t kept = static_cast<size_t>(
        std::mismatch(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(limit), previous->tokens.begin()).first -
        prompt.begin());
    for (size_t i = kept; i < previous->cells.size(); ++i) cells_.give_back(previous->cells[i]);
    previous->cells.resize(kept);
    request.cells = std::move(previous->cells);
    request.stats.reused_tokens = static_cast<int64_t>(kept);
    updates_.push_back(Truncate{request.sequence, static_cast<int32_t>(kept), request.spec.sampling});
    decode_begin_.erase(previous->id);
    decode_end_.erase(previous->id);
    requests_.erase(previous->id);
  }
  by_sequence_[request.sequence] = &request;
  request.reserved_cells = reserved;
  request.first_batch = BatchId(next_batch_);
  request.method = std::move(method);
  request.source = std::move(source);
  if (request.source) request.source->observe(request.tokens);
  request.speculation.last_position = static_cast<int32_t>(reserved) - 2;  // a token drawn there is the last
  request.stats.submitted = executor_->now();
  running_.push_back(&request);
  feed();
  return id;
}

Status Engine::set_method(RequestId id, const std::string& method, const std::vector<std::string>& sources) {
  Request& request = find(id);
  SLUICE_TRY(auto next, make_method(method, request.spec.method_options));
  if (next->speculates() && request.source == nullptr) {
    SLUICE_TRY(request.source, make_source(sources));
    request.source->observe(request.tokens);
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
  for (const Cell cell : request.cells) cells_.give_back(cell);
  reserved_ -= request.reserved_cells;
  updates_.push_back(Close{request.sequence});
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

Status Engine::handle(const Event& event, std::vector<Progress>& progress) {
  if (const auto* outcome = std::get_if<Outcome>(&event)) {
    handle_outcome(*outcome, progress);
  } else if (const auto* report = std::get_if<StageReport>(&event)) {
    StageClock& clock = stages_[static_cast<size_t>(report->stage.value)];
    clock.busy += report->end - report->begin;
    clock.batches += report->rows_computed > 0;
    if (report->stage == StageId(0)) --first_stage_load_;
    if (options_.trace)
      trace_.spans.push_back({report->stage, report->batch, report->begin, report->end, report->rows_computed});
  } else if (const auto* failed = std::get_if<WorkerFailed>(&event)) {
    return tl::unexpected<Error>(failed->error);
  }
  return {};
}

void Engine::handle_outcome(const Outcome& outcome, std::vector<Progress>& progress) {
  const auto entered = submitted_.find(outcome.batch);
  if (!outcome.accepted.empty()) transit_ = executor_->now() - entered->second;
  submitted_.erase(entered);
  for (const Accepted& accepted : outcome.accepted) {
    const auto at = by_sequence_.find(accepted.sequence);
    if (at == by_sequence_.end()) continue;  // released meanwhile
    Request& request = *at->second;
    if (request.finish != Finish::kNone || outcome.batch < request.first_batch) continue;
    if (progress.empty() || progress.back().request != request.id)
      progress.push_back({.request = request.id, .tokens = {}});
    accept(request, accepted, progress.back());
  }
}

// The root is verified and the target's next token known: it is committed, becomes the root, and what hangs elsewhere
// dies.
void Engine::accept(Request& request, const Accepted& accepted, Progress& progress) {
  Speculation& speculation = request.speculation;
  const NodeId old_root = speculation.tree.root().id;
  const Resident* resident = speculation.target.find(old_root);
  SLUICE_CHECK(resident != nullptr && resident->cell == accepted.cell, "the last worker verifies the root");
  resolve(*resident, Fate::kAccepted);
  request.cells.push_back(accepted.cell);
  updates_.push_back(Commit{request.sequence, accepted.cell});
  speculation.target.leave(old_root);

  const auto advance = speculation.tree.advance(accepted.next);
  request.tokens.push_back(accepted.next);
  progress.tokens.push_back(accepted.next);
  if (request.source) request.source->observe({&accepted.next, 1});
  // Of the token beyond the last position there was no guess: with it the answer ends.
  const bool guessed = speculation.tree.root().position <= speculation.last_position;
  const bool flush = !advance.hit && guessed && request.method->speculates();
  request.stats.accepted += advance.hit;
  request.stats.flushes += flush;
  Cancel cancel;
  prune(request, advance.pruned, flush ? Fate::kFlushed : Fate::kPruned, cancel);
  if (!cancel.rows.empty()) executor_->cancel(std::move(cancel));

  const double now = executor_->now();
  if (request.n_answer() == 1) {
    request.stats.first_token = now;
    decode_begin_[request.id] = stages_;
  }
  request.stats.last_token = now;
  if (options_.trace)
    trace_.emissions.push_back(
        {now, request.id.value, speculation.tree.root().position, tokenizer_->piece(accepted.next, true), !flush});

  if (!request.spec.ignore_end && tokenizer_->ends_generation(accepted.next)) {
    finish(request, Finish::kStop);
  } else if (request.n_answer() >= static_cast<size_t>(request.spec.max_tokens) ||
             request.tokens.size() >= static_cast<size_t>(options_.context)) {
    finish(request, Finish::kLength);
  }
  progress.finish = request.finish;
}

void Engine::finish(Request& request, Finish finish) {
  request.finish = finish;
  decode_end_[request.id] = stages_;
  // Nothing of the tree is of use any more, the root included.
  std::vector<NodeId> nodes;
  for (const auto& node : request.speculation.tree.nodes()) nodes.push_back(node.id);
  Cancel cancel;
  prune(request, nodes, Fate::kPruned, cancel);
  if (!cancel.rows.empty()) executor_->cancel(std::move(cancel));
  std::erase(running_, &request);
}

void Engine::prune(Request& request, const std::vector<NodeId>& nodes, Fate fate, Cancel& cancel) {
  Residency& target = request.speculation.target;
  for (const NodeId node : nodes) {
    const Resident* resident = target.find(node);
    if (resident == nullptr) continue;
    cancel.rows.push_back({resident->batch, resident->row});
    cells_.give_back(resident->cell);
    resolve(*resident, fate);
    target.leave(node);
  }
}

// When stages take equal times, the verdict on the root comes just after the first stage has fallen free, later by a
// message. What enters then had better know it: of the nodes that would have entered, most may be dead, and after a
// flush all are. If a verdict is due within a small part of a step, this is when.
std::optional<double> Engine::verdict_due() const {
  const double step = transit_ / static_cast<double>(stages_.size()), now = executor_->now();
  for (const Request* request : running_) {
    const Resident* root = request->speculation.target.find(request->speculation.tree.root().id);
    if (root == nullptr || !request->method->speculates()) continue;
    const double due = submitted_.at(root->batch) + transit_ + 0.005 * step;
    if (due > now && due - now < 0.05 * step) return due;
  }
  return std::nullopt;
}

// Gives the first stage its next batch as soon as it is free.
void Engine::feed() {
  if (first_stage_load_ > 0 || running_.empty()) return;
  if (const auto due = verdict_due()) return executor_->wake_at(*due);
  size_t needed = 0;  // cells that committed tokens and roots may still ask for
  for (const auto& [id, request] : requests_) needed += request.cells_to_come();
  const size_t spare = cells_.available() - std::min(cells_.available(), needed);
  const std::vector<Planned> plan = scheduler_.compose(running_, cells_.available(), spare);
  if (plan.empty()) return;
  Batch batch;
  batch.id = BatchId(next_batch_++);
  batch.updates = std::exchange(updates_, {});
  if (options_.trace) trace_.batches.push_back({.id = batch.id, .submitted = executor_->now(), .rows = {}});
  for (const Planned& planned : plan)
    batch.rows.push_back(make_row(planned, static_cast<uint16_t>(batch.rows.size()), batch.id));
  ++n_batches_;
  submitted_[batch.id] = executor_->now();
  ++first_stage_load_;
  executor_->submit(std::move(batch));
}

Row Engine::make_row(const Planned& planned, uint16_t index, BatchId batch) {
  Request& request = *planned.request;
  Speculation& speculation = request.speculation;
  Row row{.sequence = request.sequence, .cell = cells_.take(), .index = index};
  TraceRow traced{.node = planned.node, .request = request.id.value, .log_path = planned.log_path};
  if (!planned.node.valid()) {
    row.kind = Row::Kind::kPrompt;
    row.position = static_cast<int32_t>(request.cells.size());
    row.token = request.tokens[request.cells.size()];
    row.parent = request.cells.empty() ? Cell() : request.cells.back();
    request.cells.push_back(row.cell);
    traced.fate = Fate::kPrompt;
  } else {
    const auto& node = speculation.tree.node(planned.node);
    const bool is_root = !node.parent.valid();
    row.token = node.token;
    row.position = node.position;
    if (is_root) {
      if (!request.cells.empty()) row.parent = request.cells.back();
    } else {
      const Resident* parent = speculation.target.find(node.parent);
      SLUICE_CHECK(parent != nullptr, "parents enter before their children");
      row.parent = parent->cell;
      if (parent->batch == batch) traced.parent_row = parent->row;
      ++request.stats.drafted;
    }
    traced.probability = node.probability;
    speculation.target.enter(node.id, {row.cell, batch, index});
  }
  if (options_.trace) {
    traced.token = row.token;
    traced.position = row.position;
    traced.text = tokenizer_->piece(row.token, true);
    trace_.batches.back().rows.push_back(std::move(traced));
  }
  return row;
}

void Engine::resolve(const Resident& resident, Fate fate) {
  if (!options_.trace) return;
  TraceRow& row = trace_.batches[static_cast<size_t>(resident.batch.value)].rows[resident.row];
  row.fate = fate;
  row.resolved = executor_->now();
}

RequestFigures Engine::figures(RequestId id) const {
  const Request& request = this->request(id);
  const RequestStats& stats = request.stats;
  RequestFigures figures;
  const double n = static_cast<double>(stages_.size()), tokens = static_cast<double>(request.n_answer()) - 1;
  if (tokens < 0) return figures;
  figures.prefill_seconds = stats.first_token - stats.submitted;
  figures.decode_seconds = stats.last_token - stats.first_token;
  if (figures.decode_seconds <= 0) return figures;
  figures.tokens_per_second = tokens / figures.decode_seconds;
  const auto& begin = decode_begin_.at(id);
  const auto& end = decode_end_.contains(id) ? decode_end_.at(id) : stages_;
  double slowest = 0;
  for (size_t s = 0; s < stages_.size(); ++s) {
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
  trace.header.executor = executor_->name();
  trace.header.simulated = executor_->simulated();
  if (options_.cost) trace.header.profile = options_.cost->profile().name;
  return trace;
}

}  // namespace sluice

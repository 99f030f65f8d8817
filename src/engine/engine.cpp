#include "engine/engine.h"

#include <time.h>

#include <algorithm>
#include <set>

#include "source/draw.h"
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

// The part of a pass for which it pays to wait for news.
constexpr double kSoon = 0.05;

// The drawn children of a node that are in the tree, as far as they are: what the verification may try.
void add_draws(const TokenTree& tree, const TokenTree::Node& node, uint16_t row, std::vector<Draws>& draws) {
  Draws used = *node.draws;
  used.row = row;
  const auto end = std::find_if(used.tokens.begin(), used.tokens.end(),
                                [&](Token token) { return !tree.child(node.id, token).has_value(); });
  used.tokens.erase(end, used.tokens.end());
  if (!used.tokens.empty()) draws.push_back(std::move(used));
}

// Whether the rule is defined for the method's trees.
Status check_rule(const SamplingParams& sampling, const Method& method) {
  if (sampling.rule == Rule::kMatch || !method.speculates() || method.draws() > 0) return {};
  return input_error(
      "--verify reject is defined for ar, sd, specinfer and eagle3 without --tree-nodes, p-eagle, ssd, and spd and "
      "ppsd "
      "with --width 1, whose guesses can be drawn from the source's distribution and enter together; " +
      std::string(method.name()) + " needs --verify match");
}

// A method's sources, by their names.
Result<std::vector<SourceSlot>> sources_of(const Method& method, const std::vector<std::string>& names,
                                           const SourcesAtHand& at_hand) {
  SLUICE_TRY(auto sources, make_sources(names, at_hand, method.has_hierarchy(), method.head().has_value()));
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
  SLUICE_TRY_STATUS(check_rule(spec.sampling, *method));
  SLUICE_TRY_STATUS(check_head(*method));
  std::vector<SourceSlot> sources;
  if (method->speculates()) {
    SLUICE_TRY(sources, sources_of(*method, spec.sources, sources_at_hand()));
  }

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
    const auto& prompt = request.spec.prompt;
    for (Lane& lane : lanes_) {
      auto& there = previous->residency(lane.model).committed;
      // The prompt's last token becomes the root, so it is computed again in any case.
      const size_t limit = std::min(there.size(), request.n_prompt() - 1);
      const auto end = prompt.begin() + static_cast<ptrdiff_t>(limit);
      const auto kept =
          static_cast<size_t>(std::mismatch(prompt.begin(), end, previous->tokens.begin()).first - prompt.begin());
      for (size_t i = kept; i < there.size(); ++i) lane.cells.give_back(there[i]);
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
  request.method = std::move(method);
  request.sources = std::move(sources);
  request.speculation.n_sources = request.sources.size();
  for (const SourceSlot& slot : request.sources)
    if (slot.local) slot.local->observe(request.tokens);
  request.speculation.last_position = static_cast<int32_t>(reserved) - 2;  // a token drawn there is the last
  request.stats.submitted = executor_->now();
  running_.push_back(&request);
  feed();
  return id;
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
    for (const auto& [node, resident] : there) lane.cells.give_back(resident.cell);
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
    for (const Cell cell : request.residency(lane.model).committed) lane.cells.give_back(cell);
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

Status Engine::handle(const Event& event, std::vector<Progress>& progress) {
  if (const auto* outcome = std::get_if<Outcome>(&event)) {
    if (outcome->model == kTarget) {
      handle_verdicts(*outcome, progress);
    } else {
      handle_drafted(*outcome);
    }
  } else if (const auto* report = std::get_if<StageReport>(&event)) {
    handle_report(*report);
  } else if (const auto* taps = std::get_if<TapsArrived>(&event)) {
    for (Lane& lane : lanes_)
      if (lane.head) lane.head->arrived(*taps);
  } else if (const auto* failed = std::get_if<WorkerFailed>(&event)) {
    return tl::unexpected<Error>(failed->error);
  }
  return {};
}

void Engine::handle_report(const StageReport& report) {
  Lane& lane = lanes_[static_cast<size_t>(report.model.value)];
  StageClock& clock = lane.stages[static_cast<size_t>(report.stage.value)];
  clock.busy += report.end - report.begin;
  clock.batches += report.rows_computed > 0;
  lane.times.saw(report.rows_computed, report.end - report.begin);
  if (report.stage == StageId(0)) --lane.first_stage_load;
  if (!options_.trace) return;
  int32_t row = report.stage.value;  // in the timeline: the target's stages, then the draft models'
  for (const Lane& before : std::span(lanes_).first(static_cast<size_t>(report.model.value)))
    row += static_cast<int32_t>(before.stages.size());
  trace_.spans.push_back({StageId(row), report.batch, report.begin, report.end, report.rows_computed});
}

void Engine::handle_verdicts(const Outcome& outcome, std::vector<Progress>& progress) {
  const auto entered = target().in_flight.find(outcome.batch);
  if (!outcome.accepted.empty()) target().transit = executor_->now() - entered->second.submitted;
  target().in_flight.erase(entered);
  std::set<RequestId> counted;
  for (const Accepted& accepted : outcome.accepted) {
    const auto at = by_sequence_.find(accepted.sequence);
    if (at == by_sequence_.end()) continue;  // released meanwhile
    Request& request = *at->second;
    if (request.finish != Finish::kNone || outcome.batch < request.first_batch) continue;
    if (progress.empty() || progress.back().request != request.id)
      progress.push_back({.request = request.id, .tokens = {}});
    request.stats.verifications += counted.insert(request.id).second;
    accept(request, accepted, progress.back());
  }
}

void Engine::handle_drafted(const Outcome& outcome) {
  Lane& lane = lanes_[static_cast<size_t>(outcome.model.value)];
  auto& in_flight = lane.in_flight;
  const auto flight = in_flight.extract(outcome.batch);
  lane.transit = executor_->now() - flight.mapped().submitted;
  for (const Drafted& drafted : outcome.drafted) {
    const auto [id, node] = flight.mapped().rows[drafted.row];
    const auto at = requests_.find(id);
    if (at == requests_.end() || at->second.finish != Finish::kNone) continue;
    Request& request = at->second;
    const auto source = request.source_of(outcome.model);
    if (source && request.speculation.tree.contains(node)) take_guesses(request, *source, node, drafted);
  }
}

void Engine::take_guesses(Request& request, size_t source, NodeId node, const Drafted& drafted) {
  TokenTree& tree = request.speculation.tree;
  if (drafted.depth > 0 && !request.method->takes_chains()) return;
  for (int32_t below = 0; below < drafted.depth; ++below) {
    const auto& candidates = tree.node(node).candidates;
    if (candidates.empty() || tree.node(node).position >= request.speculation.last_position) return;
    const Candidate best = candidates.front();
    const auto known = tree.child(node, best.token);
    node = known ? *known : tree.append(node, best.token, best.probability);
  }
  if (drafted.depth > 0 && tree.node(node).drafted) return;
  const auto& local = request.sources[source].local;
  if (request.spec.sampling.rule == Rule::kReject && !local)
    return answer_with_draws(request, source, node, drafted.candidates);
  std::vector<Candidate> candidates = drafted.candidates;
  if (local) {
    const std::vector<Candidate> said[] = {std::move(candidates),
                                           local->expand(tree.path(node), request.spec.method_options.children)};
    candidates = request.fusion.fuse(node, said);
  }
  request.method->drafted(request.speculation, source, node, std::move(candidates));
}

// Rule `reject`: the children are drawn from q; behind them, what the source ranks next. (Candidates that were ranked,
// not drawn, count as a point mass: then the target's own draw decides whether it is one of them.)
void Engine::answer_with_draws(Request& request, size_t source, NodeId node, const std::vector<Candidate>& q) {
  const MethodOptions& options = request.spec.method_options;
  auto draws = std::make_shared<Draws>();
  if (!q.empty())
    *draws = draw_candidates(options.saguaro < 1.0 ? saguaro(q, options.saguaro_tokens, options.saguaro) : q,
                             request.spec.sampling, request.speculation.tree.node(node).position + 1,
                             request.method->draws(), options.replacement);
  std::vector<Candidate> candidates;
  const auto add = [&](Token token) {
    const auto is_it = [token](const Candidate& c) { return c.token == token; };
    if (std::none_of(candidates.begin(), candidates.end(), is_it))
      candidates.push_back(*std::find_if(q.begin(), q.end(), is_it));
  };
  for (const Token token : draws->tokens) add(token);
  for (const Candidate& c : q) add(c.token);
  request.method->drafted(request.speculation, source, node, std::move(candidates), std::move(draws));
}

// The root is verified and the target's next token known: it is committed, becomes the root, and what hangs elsewhere
// dies.
void Engine::accept(Request& request, const Accepted& accepted, Progress& progress) {
  Speculation& speculation = request.speculation;
  const NodeId old_root = speculation.tree.root().id;
  const Resident* resident = speculation.target.find(old_root);
  SLUICE_CHECK(resident != nullptr && resident->cell == accepted.cell, "the last worker verifies the root");
  resolve(*resident, Fate::kAccepted);
  request.last_verified = resident->batch;
  for (Lane& lane : lanes_) {  // a draft model that doesn't know the root takes it as a prompt row when it comes to it
    Residency& there = request.residency(lane.model);
    const Resident* known = there.find(old_root);
    if (known == nullptr) continue;
    there.committed.push_back(known->cell);
    lane.updates.push_back(Commit{request.sequence, known->cell});
    there.leave(old_root);
  }

  request.fusion.learn(old_root, accepted.next);
  const auto advance = speculation.tree.advance(accepted.next);
  request.fusion.forget(advance.pruned);
  request.tokens.push_back(accepted.next);
  progress.tokens.push_back(accepted.next);
  for (const SourceSlot& slot : request.sources)
    if (slot.local) slot.local->observe({&accepted.next, 1});
  // Of the token beyond the last position there was no guess: with it the answer ends.
  const bool guessed = speculation.tree.root().position <= speculation.last_position;
  const bool flush = !advance.hit && guessed && request.method->speculates();
  request.stats.accepted += advance.hit;
  request.stats.flushes += flush;
  request.stats.runs.back() += advance.hit;
  if (flush) request.stats.runs.push_back(0);
  prune(request, advance.pruned, flush ? Fate::kFlushed : Fate::kPruned);

  const double now = executor_->now();
  if (request.n_answer() == 1) {
    request.stats.first_token = now;
    decode_begin_[request.id] = target().stages;
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
  decode_end_[request.id] = target().stages;
  // Nothing of the tree is of use any more, the root included.
  std::vector<NodeId> nodes;
  for (const auto& node : request.speculation.tree.nodes()) nodes.push_back(node.id);
  prune(request, nodes, Fate::kPruned);
  std::erase(running_, &request);
}

// Their cells are free, and whoever still has them in a batch need not compute them.
void Engine::prune(Request& request, const std::vector<NodeId>& nodes, Fate fate) {
  for (Lane& lane : lanes_) {
    Residency& there = request.residency(lane.model);
    Cancel cancel;
    for (const NodeId node : nodes) {
      const Resident* resident = there.find(node);
      if (resident == nullptr) continue;
      if (lane.in_flight.contains(resident->batch)) cancel.rows.push_back({resident->batch, resident->row});
      lane.cells.give_back(resident->cell);
      if (lane.model == kTarget) resolve(*resident, fate);
      there.leave(node);
    }
    if (!cancel.rows.empty()) executor_->cancel(lane.model, std::move(cancel));
  }
}

// When stages take equal times, the verdict on the root comes just after the first stage has fallen free, later by a
// message, and so does the answer of a draft model that takes as long. What enters then had better know them: after a
// verdict most of the nodes that would have entered may be dead, and an answer names likelier ones. If news is due
// within a small part of a step, this is when.
std::optional<double> Engine::news_due() const {
  const Lane& lane = target();
  const double step = lane.transit / static_cast<double>(lane.stages.size()), now = executor_->now();
  std::optional<double> earliest;
  const auto expect = [&](double due) {
    if (due > now && due - now < kSoon * step && (!earliest || due < *earliest)) earliest = due;
  };
  for (const Request* request : running_) {
    const Resident* root = request->speculation.target.find(request->speculation.tree.root().id);
    if (root == nullptr || !request->method->speculates()) continue;
    expect(lane.in_flight.at(root->batch).submitted + lane.transit + 0.005 * step);
  }
  for (const Lane& draft : std::span(lanes_).subspan(1))
    if (const auto due = draft.due()) expect(*due + 0.005 * step);
  return earliest;
}

// What enters one model may be what another was waiting for: a draft model goes on below a tree when that has entered.
void Engine::feed() {
  while (feed_idle()) {
  }
}

// Gives every model whose first stage is free its next batch; whether there was one.
bool Engine::feed_idle() {
  if (running_.empty()) return false;
  std::vector<Room> rooms;
  bool idle = false;
  const double now = executor_->now();
  const auto news = news_due();
  for (const Lane& lane : lanes_) {
    size_t promised = 0;  // cells that committed tokens and roots may still ask for
    for (const auto& [id, request] : requests_) promised += request.cells_to_come(lane.model);
    rooms.push_back(lane.room(promised));
    // A draft model's own answer comes just after it has fallen free, and its next questions depend on it.
    const bool answers = lane.model != kTarget && lane.due() && *lane.due() - now < kSoon * lane.transit;
    if (rooms.back().idle && !answers && news) executor_->wake_at(*news);
    rooms.back().idle = rooms.back().idle && !answers && !news;
    idle = idle || rooms.back().idle;
  }
  if (!idle) return false;
  auto plans = scheduler_.compose(running_, rooms);
  // A method may wait for a source that has no room to answer: then the roots go on alone, and their verdicts make
  // room.
  const auto quiet = [this](const Lane& lane) { return is_quiet(lane); };
  const auto empty = [](const std::vector<Planned>& plan) { return plan.empty(); };
  if (std::all_of(lanes_.begin(), lanes_.end(), quiet) && std::all_of(plans.begin(), plans.end(), empty))
    for (Request* request : running_)
      if (request->prompt_rows_left(kTarget) == 0) plans[0].push_back({request, request->speculation.tree.root().id});
  bool sent = false;
  for (size_t m = 0; m < lanes_.size(); ++m) {
    if (plans[m].empty()) continue;
    send(lanes_[m], plans[m]);
    sent = true;
  }
  return sent;
}

void Engine::send(Lane& lane, const std::vector<Planned>& plan) {
  Batch batch;
  batch.id = BatchId(next_batch_++);
  batch.updates = std::exchange(lane.updates, {});
  if (options_.trace)
    trace_.batches.push_back({.id = batch.id, .model = lane.model, .submitted = executor_->now(), .rows = {}});
  Lane::Flight& flight = lane.in_flight[batch.id];
  flight.submitted = executor_->now();
  for (const Planned& planned : plan) {
    add_row(lane, planned, batch);
    if (lane.model != kTarget) flight.rows.push_back({planned.request->id, planned.node});
  }
  n_batches_ += lane.model == kTarget;
  ++lane.first_stage_load;
  executor_->submit(lane.model, std::move(batch));
}

// Nothing is under way, and no state that a head waits for.
bool Engine::is_quiet(const Lane& lane) const {
  const auto waits = [&](const Request* request) {
    return request->last_verified.valid() && request->source_of(lane.model) && !lane.head->knows_committed(*request);
  };
  return lane.in_flight.empty() && !(lane.head && std::any_of(running_.begin(), running_.end(), waits));
}

void Engine::add_row(Lane& lane, const Planned& planned, Batch& batch) {
  Request& request = *planned.request;
  Residency& there = request.residency(lane.model);
  const auto index = static_cast<uint16_t>(batch.rows.size());
  Row& row = batch.rows.emplace_back(Row{.sequence = request.sequence, .cell = lane.cells.take(), .index = index});
  TraceRow traced{.node = planned.node, .request = request.id.value, .log_path = planned.log_path};
  if (!planned.node.valid()) {
    row.kind = Row::Kind::kPrompt;
    row.position = static_cast<int32_t>(there.committed.size());
    row.token = request.tokens[there.committed.size()];
    row.parent = there.committed.empty() ? Cell() : there.committed.back();
    there.committed.push_back(row.cell);
    traced.fate = Fate::kPrompt;
    if (lane.head) lane.head->add_prompt(request, there, batch);
  } else {
    const auto& node = request.speculation.tree.node(planned.node);
    const bool is_root = !node.parent.valid();
    row.token = node.token;
    row.position = node.position;
    if (is_root) {
      if (!there.committed.empty()) row.parent = there.committed.back();
    } else {
      const Resident* parent = there.find(node.parent);
      SLUICE_CHECK(parent != nullptr, "parents enter before their children");
      row.parent = parent->cell;
      if (parent->batch == batch.id) traced.parent_row = parent->row;
      request.stats.drafted += lane.model == kTarget;
    }
    traced.probability = node.probability;
    there.enter(node.id, {row.cell, batch.id, index});
    if (lane.model == kTarget && node.draws) add_draws(request.speculation.tree, node, index, batch.draws);
    if (lane.model != kTarget) traced.fate = Fate::kDrafted;
    if (lane.head) lane.head->add_node(request, node.id, there, batch);
  }
  if (options_.trace) {
    traced.token = row.token;
    traced.position = row.position;
    traced.text = tokenizer_->piece(row.token, true);
    trace_.batches.back().rows.push_back(std::move(traced));
  }
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

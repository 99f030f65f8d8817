// What comes in: verdicts, guesses, reports.
#include <algorithm>
#include <set>

#include "engine/engine.h"
#include "source/draw.h"

namespace sluice {

Status Engine::handle(const Event& event) {
  if (const auto* outcome = std::get_if<Outcome>(&event)) {
    if (outcome->model == kTarget) {
      handle_verdicts(*outcome);
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
  const double seconds = report.end - report.begin;
  clock.busy += seconds;
  if (report.rows_computed > 0) {
    constexpr double kNewest = 1.0 / 8;
    clock.lately += std::max(kNewest, 1.0 / static_cast<double>(++clock.batches)) * (seconds - clock.lately);
  }
  const auto flight = lane.in_flight.find(report.batch);
  const bool prompts = flight != lane.in_flight.end() && flight->second.prompts;
  if (flight != lane.in_flight.end()) flight->second.busy += seconds;
  (prompts ? lane.mixed_times : lane.times).saw(report.rows_computed, seconds);
  if (prompts) lane.times.saw_others(report.rows_computed, seconds);
  if (report.stage == StageId(0)) --lane.first_stage_load;
  if (!options_.trace) return;
  int32_t row = report.stage.value;  // in the timeline: the target's stages, then the draft models'
  for (const Lane& before : std::span(lanes_).first(static_cast<size_t>(report.model.value)))
    row += static_cast<int32_t>(before.stages.size());
  trace_.spans.push_back({StageId(row), report.batch, report.begin, report.end, report.rows_computed});
}

void Engine::handle_verdicts(const Outcome& outcome) {
  const auto entered = target().in_flight.find(outcome.batch);
  target().came_out(entered->second, executor_->now());
  if (!outcome.accepted.empty()) target().transit = executor_->now() - entered->second.submitted;
  target().in_flight.erase(entered);
  std::set<RequestId> counted;
  for (const Accepted& accepted : outcome.accepted) {
    const auto at = by_sequence_.find(accepted.sequence);
    if (at == by_sequence_.end()) continue;  // released meanwhile
    Request& request = *at->second;
    if (request.finish != Finish::kNone || outcome.batch < request.first_batch) continue;
    request.stats.verifications += counted.insert(request.id).second;
    try {
      accept(request, accepted);
    } catch (const std::exception& error) {
      fail(request, error.what());
    }
  }
}

Progress& Engine::progress_of(const Request& request) {
  if (progress_.empty() || progress_.back().request != request.id)
    progress_.push_back({.request = request.id, .tokens = {}});
  return progress_.back();
}

void Engine::handle_drafted(const Outcome& outcome) {
  Lane& lane = lanes_[static_cast<size_t>(outcome.model.value)];
  auto& in_flight = lane.in_flight;
  const auto flight = in_flight.extract(outcome.batch);
  lane.came_out(flight.mapped(), executor_->now());
  lane.transit = executor_->now() - flight.mapped().submitted;
  for (const Drafted& drafted : outcome.drafted) {
    const auto [id, node] = flight.mapped().rows[drafted.row];
    const auto at = requests_.find(id);
    if (at == requests_.end() || at->second.finish != Finish::kNone) continue;
    Request& request = at->second;
    const auto source = request.source_of(outcome.model);
    if (!source || !request.speculation.tree.contains(node)) continue;
    try {
      take_guesses(request, *source, node, drafted);
    } catch (const std::exception& error) {
      fail(request, error.what());
    }
  }
}

void Engine::take_guesses(Request& request, size_t source, NodeId node, const Drafted& drafted) {
  TokenTree& tree = request.speculation.tree;
  if (drafted.depth > 0 && !request.method.traits.takes_chains) return;
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
  request.method.policy->drafted(request.speculation, source, node, std::move(candidates));
}

// Rule `reject`: the children are drawn from q; behind them, what the source ranks next. (Candidates that were ranked,
// not drawn, count as a point mass: then the target's own draw decides whether it is one of them.)
//
// Whether a draw is used must not depend on what was drawn, or the answer's distribution is no longer the target's. So
// how many are drawn is known before; a node is drawn for once; the noise is the node's own, so that nothing that
// happened before can have depended on it; and what was drawn leaves before anything is done with it: at once if the
// node is on its way, else with the node's row. Which of the children enter has no part in it.
void Engine::answer_with_draws(Request& request, size_t source, NodeId id, std::vector<Candidate> q) {
  Speculation& speculation = request.speculation;
  const auto& node = speculation.tree.node(id);
  const int32_t count = request.method.traits.draws;
  if (node.draws) return;
  if (count == 0 || q.empty()) return request.method.policy->drafted(speculation, source, id, std::move(q));
  const SamplingParams& sampling = request.spec.sampling;
  const DrawSite site{.seed = sampling.seed,
                      .choice = sampling.choice,
                      .position = static_cast<uint32_t>(node.position) + 1,
                      .purpose = Purpose::kDraft,
                      .path = node.text};
  const auto draws =
      std::make_shared<Draws>(draw_candidates(q, request.method.policy->bend(speculation.tree, id), site, count,
                                              request.spec.method_options.replacement, options_.choose));
  const Resident* resident = speculation.target.find(id);
  if (resident != nullptr && target().in_flight.contains(resident->batch)) {
    Amendment late;
    late.late_draws.push_back({resident->batch, *draws});
    late.late_draws.back().draws.row = resident->row;
    executor_->amend(kTarget, std::move(late));
  }
  request.method.policy->drafted(speculation, source, id, ranked(*draws, q), draws);
}

// The root is verified and the target's next token known: it is committed, becomes the root, and what hangs elsewhere
// dies.
void Engine::accept(Request& request, const Accepted& accepted) {
  Speculation& speculation = request.speculation;
  const NodeId old_root = speculation.tree.root().id;
  const Resident* resident = speculation.target.find(old_root);
  SLUICE_CHECK(resident != nullptr && resident->cell == accepted.cell, "the last worker verifies the root");
  resolve(*resident, Fate::kAccepted);
  request.last_verified = resident->batch;
  const BatchId entered = resident->batch;
  for (Lane& lane : lanes_) {  // a draft model that doesn't know the root takes it as a prompt row when it comes to it
    Residency& there = request.residency(lane.model);
    const Resident* known = there.find(old_root);
    if (known == nullptr) continue;
    there.committed.push_back(known->cell);
    lane.news.commit(request.sequence, known->cell);
    there.leave(old_root);
  }
  request.note_committed(entered);

  double expected = 0.0;
  bool came = false;
  for (const auto& node : speculation.tree.nodes()) {
    if (node.parent != old_root || !speculation.target.entered(node.id)) continue;
    expected += node.probability;
    came = came || node.token == accepted.next;
  }
  request.fusion.learn(old_root, accepted.next);
  if (!accepted.odds.empty()) request.method.policy->learn(accepted.odds);
  const auto advance = speculation.tree.advance(accepted.next);
  request.fusion.forget(advance.pruned);
  request.tokens.push_back(accepted.next);
  progress_of(request).tokens.push_back(accepted.next);
  for (const SourceSlot& slot : request.sources)
    if (slot.local) slot.local->observe({&accepted.next, 1});
  // Of the token beyond the last position there was no guess: with it the answer ends.
  const bool guessed = speculation.tree.root().position <= speculation.last_position;
  const bool flush = !advance.hit && guessed && request.method.traits.speculates;
  request.stats.accepted += advance.hit;
  request.stats.drafted += advance.hit && !speculation.target.entered(speculation.tree.root().id);
  request.stats.flushes += flush;
  request.stats.runs.back() += advance.hit;
  if (flush) request.stats.runs.push_back(0);
  prune(request, advance.pruned, flush ? Fate::kFlushed : Fate::kPruned);

  const double now = executor_->now();
  request.learn_pace(now, expected, came);
  guesses_.learn(expected, came);
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
  progress_of(request).finish = request.finish;
  count_promised(request);
}

void Engine::finish(Request& request, Finish finish) {
  request.finish = finish;
  decode_end_[request.id] = target().stages;
  // Nothing of the tree is of use any more, the root included.
  std::vector<NodeId> nodes;
  for (const auto& node : request.speculation.tree.nodes()) nodes.push_back(node.id);
  prune(request, nodes, Fate::kPruned);
  std::erase(running_, &request);
  count_promised(request);
}

// Their cells are free, and whoever still has them in a batch need not compute them.
void Engine::prune(Request& request, const std::vector<NodeId>& nodes, Fate fate) {
  for (Lane& lane : lanes_) {
    Residency& there = request.residency(lane.model);
    Amendment amendment;
    for (const NodeId node : nodes) {
      const Resident* resident = there.find(node);
      if (resident == nullptr) continue;
      if (lane.in_flight.contains(resident->batch)) amendment.dead.push_back({resident->batch, resident->row});
      lane.cells.give_back(request.sequence, resident->cell);
      if (lane.model == kTarget) resolve(*resident, fate);
      there.leave(node);
    }
    if (!amendment.dead.empty()) executor_->amend(lane.model, std::move(amendment));
  }
}

void Engine::resolve(const Resident& resident, Fate fate) {
  if (!options_.trace) return;
  TraceRow& row = trace_.batches[static_cast<size_t>(resident.batch.value - options_.first_batch)].rows[resident.row];
  row.fate = fate;
  row.resolved = executor_->now();
}

}  // namespace sluice

// What comes in: verdicts, guesses, reports.
#include <utility>

#include "engine/engine.h"

namespace sluice {

namespace {

Progress& progress_of(const Request& request, std::vector<Progress>& all) {
  if (all.empty() || all.back().request != request.id) all.push_back({.request = request.id, .tokens = {}});
  return all.back();
}

// Nothing is broken but the answer, so whoever begins likewise may have its cells.
Error form_error() {
  return {
      ErrorKind::kInput,
      "the answer can't be kept to its form any further: where a text can be read in many ways, matching takes longer "
      "with every token; write root ::= \"a\"+ for root ::= root root | \"a\", or the like"};
}

}  // namespace

Status Engine::handle(const Event& event) {
  if (const auto* outcome = std::get_if<Outcome>(&event)) {
    if (outcome->model == kTarget) {
      handle_verdicts(*outcome);
    } else {
      handle_drafted(*outcome);
    }
  } else if (const auto* report = std::get_if<StageReport>(&event)) {
    lane_of(report->model).traffic().computed(*report, executor_->now());
    recorder_.computed(*report);
  } else if (const auto* taps = std::get_if<TapsArrived>(&event)) {
    for (Lane& lane : lanes_)
      if (lane.head()) lane.head()->arrived(*taps);
  } else if (const auto* failed = std::get_if<WorkerFailed>(&event)) {
    return tl::unexpected<Error>(failed->error);
  } else if (const auto* replaced = std::get_if<StagesReplaced>(&event)) {
    replaced->model == kTarget ? start_over(kTarget) : read_anew(lane_of(replaced->model));
    no_longer_lacks(replaced->model);
    executor_->resume(replaced->model, replaced->generation);
  } else if (const auto* lost = std::get_if<StagesLost>(&event)) {
    give_up(*lost);
  }
  return {};
}

Lookups Engine::lookups() const {
  Lookups all;
  for (const Lane& lane : lanes_)
    for (const StageClock& stage : lane.traffic().stages()) {
      all.asked += stage.lookups.asked;
      all.missed += stage.lookups.missed;
    }
  return all;
}

uint64_t Engine::out_of_range() const {
  uint64_t all = 0;
  for (const StageClock& stage : target().traffic().stages()) all += stage.out_of_range;
  return all;
}

Lane& Engine::lane_of(ModelId model) {
  SLUICE_CHECK(model.valid() && static_cast<size_t>(model.value) < lanes_.size(), "the model is one of this engine");
  return lanes_[static_cast<size_t>(model.value)];
}

void Engine::handle_verdicts(const Outcome& outcome) {
  target().traffic().came_out(outcome, executor_->now());
  for (const Accepted& accepted : outcome.accepted) {
    Request* const holder = admission_.holder(accepted.sequence);
    if (holder == nullptr) continue;  // released meanwhile
    Request& request = *holder;
    if (request.finish != Finish::kNone || outcome.batch < request.first_batch) continue;
    if (request.last_verified != outcome.batch) ++request.stats.verifications;
    try {
      accept(request, accepted);
    } catch (const std::exception& error) {
      fail(request, error.what());
    }
  }
  // The root is on the path, so that wherever it has entered a verdict comes of it: else the request would wait for
  // ever.
  const std::vector<Request*> running = running_;
  for (Request* request : running) {
    const Resident* root = request->speculation.target.find(request->speculation.tree.root().id);
    if (root != nullptr && root->batch == outcome.batch) fail(*request, "the target's last stage has not verified it");
  }
}

void Engine::handle_drafted(const Outcome& outcome) {
  Lane& lane = lane_of(outcome.model);
  const Traffic::Flight flight = lane.traffic().came_out(outcome, executor_->now());
  for (const Drafted& drafted : outcome.drafted) {
    SLUICE_CHECK(drafted.row < flight.rows.size(), "a guess is of a row that was asked");
    const auto [id, node] = flight.rows[drafted.row];
    Request* const asking = admission_.find_if_there(id);
    if (asking == nullptr || asking->finish != Finish::kNone) continue;
    Request& request = *asking;
    const auto source = request.source_of(outcome.model);
    if (!source || !request.speculation.tree.contains(node)) continue;
    try {
      auto late = drafting_.take(request, *source, node, drafted);
      if (late && target().traffic().holds(late->batch)) executor_->amend(kTarget, {.late_draws = {std::move(*late)}});
    } catch (const std::exception& error) {
      fail(request, error.what());
    }
  }
}

// The root is verified and the target's next token known: it is committed, becomes the root, and what hangs elsewhere
// dies.
void Engine::accept(Request& request, const Accepted& accepted) {
  const NodeId root = request.speculation.tree.root().id;
  const Resident* resident = request.speculation.target.find(root);
  SLUICE_CHECK(resident != nullptr && resident->cell == accepted.cell, "the target's last stage verifies the root");
  const double now = executor_->now();
  recorder_.resolved(*resident, Fate::kAccepted, now);
  request.last_verified = resident->batch;
  // A draft model that doesn't know the root takes it as a prompt row when it comes to it.
  for (Lane& lane : lanes_) lane.commit(request, root);
  request.note_committed(request.last_verified);

  const Request::Step step = request.advance(accepted.next, accepted.odds, now);
  guesses_.learn(step.expected, step.came);
  prune(request, step.pruned, step.flush ? Fate::kFlushed : Fate::kPruned);
  Progress& progress = progress_of(request, progress_);
  progress.tokens.push_back(accepted.next);
  if (request.spec.logprobs) progress.logprobs.push_back({accepted.logprob, accepted.top});
  if (request.n_generated() == 1) {
    request.decode_begin.assign(target().traffic().stages().begin(), target().traffic().stages().end());
    request.relayed_begin = executor_->relayed();
  }
  recorder_.said(request, !step.flush, now);

  if (accepted.form_failed) {
    request.error = form_error();
    finish(request, Finish::kFormFailed);
  } else if (!request.spec.ignore_end && tokenizer_->ends_generation(accepted.next)) {
    finish(request, Finish::kStop);
  } else if (request.tokens.size() >= request.reserved_cells) {
    finish(request, Finish::kLength);
  }
  progress_of(request, progress_).finish = request.finish;
  admission_.count_promised(request);
}

void Engine::finish(Request& request, Finish finish) {
  request.finish = finish;
  request.decode_end.assign(target().traffic().stages().begin(), target().traffic().stages().end());
  request.relayed_end = executor_->relayed();
  // Nothing of the tree is of use any more, the root included.
  std::vector<NodeId> nodes;
  for (const auto& node : request.speculation.tree.nodes()) nodes.push_back(node.id);
  prune(request, nodes, Fate::kPruned);
  request.guide.reset();
  std::erase(running_, &request);
  admission_.count_promised(request);
}

// Its state may contradict itself, so nothing that it held is given to others, and nothing is said of it any more.
void Engine::fail(Request& request, const std::string& why) {
  end_with(request, {ErrorKind::kRuntime, "request " + std::to_string(request.id.value) + " failed: " + why});
}

void Engine::end_with(Request& request, const Error& error) {
  request.finish = Finish::kFailed;
  request.error = error;
  request.decode_end.assign(target().traffic().stages().begin(), target().traffic().stages().end());
  admission_.count_promised(request);
  std::erase(running_, &request);
  progress_of(request, progress_).finish = Finish::kFailed;
}

void Engine::fail_all(const Error& error) {
  failed_ = error;
  while (admission_.waiting() > 0) running_.push_back(&admission_.drop_first());
  for (Request* request : running_) {
    request->finish = Finish::kFailed;
    request->error = error;
  }
  running_.clear();
}

// Their cells are free, and whoever still has them in a batch need not compute them.
void Engine::prune(Request& request, const std::vector<NodeId>& nodes, Fate fate) {
  for (const NodeId node : nodes)
    if (const Resident* resident = request.speculation.target.find(node))
      recorder_.resolved(*resident, fate, executor_->now());
  for (Lane& lane : lanes_) lane.prune(request, nodes);
}

void Engine::tell_dead() {
  for (Lane& lane : lanes_)
    if (Amendment dead = lane.take_dead(); !dead.dead.empty()) executor_->amend(lane.model(), std::move(dead));
}

}  // namespace sluice

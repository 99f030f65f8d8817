// Who gets cells, and when: requests wait for them in the order in which they came.
#include <algorithm>

#include "engine/engine.h"

namespace sluice {

Result<RequestId> Engine::submit(RequestSpec spec) {
  if (failed_) return tl::unexpected<Error>(*failed_);
  SLUICE_TRY(auto means, means_for(spec));
  const size_t cells =
      std::min(spec.prompt.size() + static_cast<size_t>(spec.max_tokens), static_cast<size_t>(options_.context));
  SLUICE_TRY_STATUS(check_room(cells));
  const RequestId id(next_request_++);
  auto& request = requests_.try_emplace(id, id, std::move(spec)).first->second;
  request.speculation.drafts.resize(options_.drafts.size());
  request.promised.resize(lanes_.size());
  request.reserved_cells = cells;
  request.speculation.last_position = static_cast<int32_t>(cells) - 2;  // a token drawn there is the last
  request.method = std::move(means.method);
  request.sources = std::move(means.sources);
  request.speculation.n_sources = request.sources.size();
  request.stats.submitted = executor_->now();
  if (request.spec.continues) {
    Request& previous = find(*request.spec.continues);
    SLUICE_CHECK(previous.finish != Finish::kNone, "only a finished request can be continued");
    SLUICE_CHECK(!previous.heir, "a request is continued once");
    previous.heir = id;
  }
  waiting_.push_back(&request);
  admit();
  feed();
  return id;
}

// Whether a request could have so many cells if no other was there, and wait for them.
Status Engine::check_room(size_t cells) const {
  for (const Lane& lane : lanes_)
    if (cells > static_cast<size_t>(lane.n_cells))
      return input_error("no room for a request of " + std::to_string(cells) + " tokens: the KV cache has " +
                         std::to_string(lane.n_cells) + " cells; ask for a shorter answer (--max-tokens)");
  if (waiting_.size() >= options_.most_waiting)
    return runtime_error("the queue is full: " + std::to_string(waiting_.size()) +
                         " requests wait for cells of the KV cache; ask again when some have ended");
  return {};
}

// Lets begin who waits, in the order of arrival, as far as there are cells.
void Engine::admit() {
  while (!waiting_.empty()) {
    Request& request = *waiting_.front();
    if (!make_room(request)) {
      if (!running_.empty()) return;  // when one of them ends
      waiting_.pop_front();
      fail(request, "the cells that it needs were held by requests that broke");
      continue;
    }
    waiting_.pop_front();
    begin(request);
  }
}

// Whether there are cells for the request, finished ones having given up theirs as far as need be: the oldest first,
// those that somebody goes on with last, and its own predecessor not at all.
bool Engine::make_room(const Request& request) {
  const auto previous = request.spec.continues ? requests_.find(*request.spec.continues) : requests_.end();
  const auto taken = [&] { return reserved_ - (previous == requests_.end() ? 0 : previous->second.reserved_cells); };
  const auto fits = [&] {
    return std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
      return taken() + request.reserved_cells <= static_cast<size_t>(lane.n_cells);
    });
  };
  for (const bool continued : {false, true})
    for (auto& [id, other] : requests_) {
      if (fits()) return true;
      const bool holds = other.finish != Finish::kNone && other.finish != Finish::kFailed && other.reserved_cells > 0;
      if (holds && other.heir.has_value() == continued && other.heir != request.id) give_up_cells(other);
    }
  return fits();
}

void Engine::begin(Request& request) {
  reserved_ += request.reserved_cells;
  if (request.spec.continues) {
    const auto previous = requests_.find(*request.spec.continues);
    if (previous != requests_.end()) go_on(request, previous->second);
  }
  if (!request.sequence.valid()) {
    request.sequence = SequenceId(next_sequence_++);
    for (Lane& lane : lanes_) lane.news.open(request.sequence, request.spec.sampling);
  }
  by_sequence_[request.sequence] = &request;
  request.first_batch = BatchId(next_batch_);
  for (const SourceSlot& slot : request.sources)
    if (slot.local) slot.local->observe(request.tokens);
  constexpr double kHalf = 0.5;  // of what a source says, until something was seen
  request.trust_before = guesses_.share(kHalf);
  running_.push_back(&request);
  count_promised(request);
}

// Takes over the sequence of its predecessor, which is forgotten: what both have in common is not computed again.
void Engine::go_on(Request& request, Request& previous) {
  const bool broken = previous.finish == Finish::kFailed;
  if (previous.sequence.valid() && !broken) {
    request.sequence = previous.sequence;
    const std::vector<size_t> keeps = kept_of(previous, request.spec.prompt, request.sources);
    for (Lane& lane : lanes_) {
      auto& there = previous.residency(lane.model).committed;
      const size_t kept = keeps[static_cast<size_t>(lane.model.value)];
      for (size_t i = kept; i < there.size(); ++i) lane.cells.give_back(request.sequence, there[i]);
      there.resize(kept);
      request.residency(lane.model).committed = std::move(there);
      request.residency(lane.model).settled = std::min(kept, previous.residency(lane.model).settled);
      lane.news.truncate(request.sequence, static_cast<int32_t>(kept), request.spec.sampling);
    }
    request.stats.reused_tokens = static_cast<int64_t>(request.speculation.target.committed.size());
    reserved_ -= previous.reserved_cells;
  }
  decode_begin_.erase(previous.id);
  decode_end_.erase(previous.id);
  requests_.erase(previous.id);
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

// A finished request's: it can still be looked at, and who continues it computes all of its tokens again.
void Engine::give_up_cells(Request& request) {
  for (Lane& lane : lanes_) {
    for (const Cell cell : request.residency(lane.model).committed) lane.cells.give_back(request.sequence, cell);
    request.residency(lane.model).committed.clear();
    lane.cells.close(request.sequence);
    lane.news.close(request.sequence);
  }
  by_sequence_.erase(request.sequence);
  request.sequence = SequenceId();
  reserved_ -= std::exchange(request.reserved_cells, 0);
}

void Engine::cancel(RequestId id) {
  Request& request = find(id);
  if (request.finish != Finish::kNone) return;
  if (request.sequence.valid()) return finish(request, Finish::kCancelled);
  std::erase(waiting_, &request);  // it has not begun
  request.finish = Finish::kCancelled;
  request.reserved_cells = 0;
}

void Engine::release(RequestId id) {
  Request& request = find(id);
  SLUICE_CHECK(request.finish != Finish::kNone, "only a finished request can be released");
  SLUICE_CHECK(!request.heir, "a request that is continued belongs to who continues it");
  if (request.finish == Finish::kFailed)
    by_sequence_.erase(request.sequence);  // and its cells are nobody's any more
  else if (request.sequence.valid())
    give_up_cells(request);
  const auto predecessor = request.spec.continues;  // if it never began, it still has one
  decode_begin_.erase(id);
  decode_end_.erase(id);
  requests_.erase(id);
  if (const auto previous = predecessor ? requests_.find(*predecessor) : requests_.end(); previous != requests_.end()) {
    previous->second.heir.reset();
    release(previous->first);
  }
  if (failed_) return;
  admit();
  feed();
}

// After whatever changes how many of its reserved cells a request has taken.
void Engine::count_promised(Request& request) {
  for (size_t m = 0; m < lanes_.size(); ++m) {
    const size_t now = request.cells_to_come(lanes_[m].model);
    lanes_[m].promised += now;
    lanes_[m].promised -= std::exchange(request.promised[m], now);
  }
}

}  // namespace sluice

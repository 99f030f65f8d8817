#include "engine/admission.h"

#include <algorithm>
#include <string>
#include <utility>

namespace sluice {

namespace {

auto& found(auto& requests, RequestId id) {
  const auto at = requests.find(id);
  SLUICE_CHECK(at != requests.end(), "no such request");
  return at->second;
}

}  // namespace

Status Admission::check_room(size_t cells) const {
  for (const Lane& lane : lanes_)
    if (cells > static_cast<size_t>(lane.n_cells()))
      return input_error("no room for a request of " + std::to_string(cells) + " tokens: the KV cache has " +
                         std::to_string(lane.n_cells()) + " cells; ask for a shorter answer (--max-tokens)");
  if (waiting_.size() >= most_waiting_)
    return runtime_error("the queue is full: " + std::to_string(waiting_.size()) +
                         " requests wait for cells of the KV cache; ask again when some have ended");
  return {};
}

Request& Admission::add(RequestSpec spec, size_t cells) {
  const RequestId id(next_request_++);
  Request& request = requests_.try_emplace(id, id, std::move(spec)).first->second;
  request.speculation.drafts.resize(lanes_.size() - 1);
  request.promised.resize(lanes_.size());
  request.reserved_cells = cells;
  request.speculation.last_position = static_cast<int32_t>(cells) - 2;  // a token drawn there is the last
  if (request.spec.continues) {
    Request& previous = find(*request.spec.continues);
    SLUICE_CHECK(previous.finish != Finish::kNone, "only a finished request can be continued");
    SLUICE_CHECK(!previous.heir, "a request is continued once");
    previous.heir = id;
  }
  waiting_.push_back(&request);
  return request;
}

Request* Admission::next() {
  Request& request = *waiting_.front();
  if (!make_room(request)) return nullptr;
  waiting_.pop_front();
  reserved_ += request.reserved_cells;
  Request* const previous = request.spec.continues ? find_if_there(*request.spec.continues) : nullptr;
  if (previous != nullptr) go_on(request, *previous);
  if (!request.sequence.valid()) {
    request.sequence = SequenceId(next_sequence_++);
    for (Lane& lane : lanes_) lane.open(request);
  }
  by_sequence_[request.sequence] = &request;
  count_promised(request);
  return &request;
}

Request& Admission::drop_first() {
  Request& request = *waiting_.front();
  waiting_.pop_front();
  return request;
}

void Admission::withdraw(Request& request) {
  std::erase(waiting_, &request);
  request.reserved_cells = 0;
}

Request& Admission::find(RequestId id) { return found(requests_, id); }
const Request& Admission::find(RequestId id) const { return found(requests_, id); }

Request* Admission::find_if_there(RequestId id) {
  const auto at = requests_.find(id);
  return at == requests_.end() ? nullptr : &at->second;
}

Request* Admission::holder(SequenceId sequence) {
  const auto at = by_sequence_.find(sequence);
  return at == by_sequence_.end() ? nullptr : at->second;
}

// Whether there are cells for the request, finished ones having given up theirs as far as need be: the oldest first,
// those that somebody goes on with last, and its own predecessor not at all.
bool Admission::make_room(const Request& request) {
  const Request* const previous = request.spec.continues ? find_if_there(*request.spec.continues) : nullptr;
  const auto fits = [&] {
    const size_t others = reserved_ - (previous == nullptr ? 0 : previous->reserved_cells);
    return std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
      return others + request.reserved_cells <= static_cast<size_t>(lane.n_cells());
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

// Takes over the sequence of its predecessor, which is forgotten: what both have in common is not computed again.
void Admission::go_on(Request& request, Request& previous) {
  const bool broken = previous.finish == Finish::kFailed;
  if (previous.sequence.valid() && !broken) {
    request.sequence = previous.sequence;
    const std::vector<size_t> keeps = kept_of(previous, request);
    for (size_t m = 0; m < lanes_.size(); ++m) lanes_[m].continue_from(previous, request, keeps[m]);
    request.stats.reused_tokens = static_cast<int64_t>(keeps.front());
    reserved_ -= previous.reserved_cells;
  }
  requests_.erase(previous.id);
}

// How many tokens of a finished request each model need not compute again.
std::vector<size_t> Admission::kept_of(const Request& previous, const Request& request) const {
  const std::vector<Token>& prompt = request.spec.prompt;
  std::vector<size_t> kept;
  for (const Lane& lane : lanes_) {
    // The prompt's last token becomes the root, so it is computed again in any case.
    const size_t limit = std::min(previous.residency(lane.model()).committed().size(), prompt.size() - 1);
    const auto end = prompt.begin() + static_cast<ptrdiff_t>(limit);
    kept.push_back(
        static_cast<size_t>(std::mismatch(prompt.begin(), end, previous.tokens.begin()).first - prompt.begin()));
  }
  for (const SourceSlot& slot : request.sources)
    if (const size_t model = slot.draft ? *slot.draft + 1 : 0; model > 0 && lanes_[model].head())
      kept[0] = std::min(kept[0], lanes_[model].head()->target_keeps(kept[model]));
  return kept;
}

// A finished request's: it can still be looked at, and who continues it computes all of its tokens again.
void Admission::give_up_cells(Request& request) {
  for (Lane& lane : lanes_) lane.close(request);
  by_sequence_.erase(request.sequence);
  request.sequence = SequenceId();
  reserved_ -= std::exchange(request.reserved_cells, 0);
}

void Admission::release(RequestId id) {
  Request& request = find(id);
  SLUICE_CHECK(request.finish != Finish::kNone, "only a finished request can be released");
  SLUICE_CHECK(!request.heir, "a request that is continued belongs to who continues it");
  if (request.finish == Finish::kFailed)
    by_sequence_.erase(request.sequence);  // and its cells are nobody's any more
  else if (request.sequence.valid())
    give_up_cells(request);
  const auto predecessor = request.spec.continues;  // if it never began, it still has one
  requests_.erase(id);
  if (Request* const previous = predecessor ? find_if_there(*predecessor) : nullptr; previous != nullptr) {
    previous->heir.reset();
    release(previous->id);
  }
}

void Admission::count_promised(Request& request) {
  for (Lane& lane : lanes_) lane.count_promised(request);
}

}  // namespace sluice

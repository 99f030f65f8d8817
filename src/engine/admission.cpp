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
  if (const Request* const other = origin(request)) {
    // The prompt's last token becomes the root, so it is computed again in any case.
    const auto end = request.tokens.begin() + std::min(std::ssize(request.tokens) - 1, std::ssize(other->tokens));
    const auto differs = std::mismatch(request.tokens.begin(), end, other->tokens.begin()).first;
    request.in_common = static_cast<size_t>(differs - request.tokens.begin());
  }
  waiting_.push_back(&request);
  return request;
}

Request* Admission::origin(const Request& request) {
  const auto id = request.spec.continues ? request.spec.continues : request.spec.shares;
  Request* const other = id ? find_if_there(*id) : nullptr;
  return other != nullptr && other->finish != Finish::kFailed ? other : nullptr;
}

// Not beyond the first token of its answer: then a head has been given all of the prompt.
bool Admission::waits_for_origin(const Request& request) {
  const Request* const other = request.spec.shares ? origin(request) : nullptr;
  if (other == nullptr || other->finish != Finish::kNone || other->n_generated() > 1) return false;
  return std::any_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    const bool both_ask =
        lane.model() == kTarget ||
        (request.source_of(lane.model()) && other->source_of(lane.model()) && other->method.traits.speculates);
    return both_ask && other->residency(lane.model()).committed().size() < request.in_common;
  });
}

Request* Admission::next() {
  const auto first = std::find_if(waiting_.begin(), waiting_.end(),
                                  [this](const Request* request) { return !waits_for_origin(*request); });
  if (first == waiting_.end() || !make_room(**first)) return nullptr;
  Request& request = **first;
  waiting_.erase(first);
  begin(request);
  return &request;
}

Request& Admission::drop_first() {
  Request& request = *waiting_.front();
  waiting_.pop_front();
  abandon(request);
  return request;
}

void Admission::withdraw(Request& request) {
  std::erase(waiting_, &request);
  abandon(request);
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

Admission::Start Admission::start_of(const Request& request) {
  Request* const other = origin(request);
  if (other == nullptr || !other->sequence.valid()) return {.kept = std::vector<size_t>(lanes_.size())};
  Start start{.origin = other};
  for (const Lane& lane : lanes_) {
    const size_t there =
        request.spec.continues ? other->residency(lane.model()).committed().size() : lane.can_share(*other);
    start.kept.push_back(lane.can_go_on(*other, std::min(request.in_common, there)));
  }
  for (const SourceSlot& slot : request.sources)
    if (const size_t model = slot.draft ? *slot.draft + 1 : 0; model > 0 && lanes_[model].head())
      start.kept[0] =
          lanes_[0].can_go_on(*other, std::min(start.kept[0], lanes_[model].head()->target_keeps(start.kept[model])));
  for (size_t model = 1; model < lanes_.size(); ++model)
    if (const HeadFeed* const head = lanes_[model].head())
      start.kept[model] = std::min(start.kept[model], head->keeps_beside(start.kept[0]));
  return start;
}

// Whether there are cells for the request, finished ones having given up theirs as far as need be: the oldest first,
// those that somebody goes on with last, and its own predecessor not at all.
bool Admission::make_room(const Request& request) {
  if (fits(request)) return true;
  for (const bool continued : {false, true})
    for (auto& [id, other] : requests_) {
      const bool holds = other.finish != Finish::kNone && other.finish != Finish::kFailed && other.reserved_cells > 0;
      const bool goes_on = other.heir || request.spec.shares == id;
      if (!holds || goes_on != continued || other.heir == request.id) continue;
      give_up_cells(other);
      if (fits(request)) return true;
    }
  return false;
}

// What it shares is there already; what others share with its predecessor stays there.
bool Admission::fits(const Request& request) {
  const Start start = start_of(request);
  return std::all_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    const size_t kept = start.kept[static_cast<size_t>(lane.model().value)];
    size_t needed = lane.needed(reserved_ + request.reserved_cells);
    if (start.origin != nullptr && request.spec.continues)
      needed = needed + lane.shared_behind(*start.origin, kept) - start.origin->reserved_cells;
    else
      needed -= kept;
    const bool takes_over = start.origin != nullptr && request.spec.continues;
    return needed <= static_cast<size_t>(lane.n_cells()) && lane.has_room_for(takes_over ? 0 : 1);
  });
}

// One that was interrupted goes on in its own.
SequenceId Admission::sequence_for(Request& request) {
  if (request.interrupted.valid()) return std::exchange(request.interrupted, SequenceId());
  return SequenceId(next_sequence_++);
}

// It is not going to begin again, if it has begun before.
void Admission::abandon(Request& request) {
  if (!request.interrupted.valid()) return;
  for (Lane& lane : lanes_) lane.abandon(request.interrupted);
  request.interrupted = SequenceId();
}

// What it has in common with its origin is not computed again. A predecessor is forgotten.
void Admission::begin(Request& request) {
  const auto [origin, kept] = start_of(request);
  const bool takes_over = origin != nullptr && request.spec.continues;
  request.sequence = takes_over ? origin->sequence : sequence_for(request);
  for (size_t m = 0; m < lanes_.size(); ++m)
    if (takes_over)
      lanes_[m].continue_from(*origin, request, kept[m]);
    else if (origin != nullptr)
      lanes_[m].fork(*origin, request, kept[m]);
    else
      lanes_[m].open(request);
  if (!request.has_begun()) request.stats.reused_tokens = static_cast<int64_t>(kept.front());
  reserved_ += request.reserved_cells;
  if (takes_over) reserved_ -= origin->reserved_cells;
  if (request.spec.continues) {
    by_sequence_.erase(find(*request.spec.continues).sequence);
    requests_.erase(*request.spec.continues);
  }
  by_sequence_[request.sequence] = &request;
  count_promised(request);
}

void Admission::let_go(Request& request) {
  for (Lane& lane : lanes_) lane.close(request);
  by_sequence_.erase(request.sequence);
  request.sequence = SequenceId();
  reserved_ -= request.reserved_cells;
}

void Admission::interrupt(Request& request) {
  for (Lane& lane : lanes_) lane.interrupt(request);
  by_sequence_.erase(request.sequence);
  request.interrupted = std::exchange(request.sequence, SequenceId());
  reserved_ -= request.reserved_cells;
}

// A finished request's: it can still be looked at, and who continues it computes all of its tokens again.
void Admission::give_up_cells(Request& request) {
  let_go(request);
  request.reserved_cells = 0;
}

// Of one that continued another the predecessor is forgotten already. What several share belongs to the last who gives
// it back, and it is the oldest who computes it again.
void Admission::start_over(std::span<Request* const> running) {
  for (auto& [id, request] : requests_)
    if (request.sequence.valid() && request.finish != Finish::kNone && request.finish != Finish::kFailed)
      give_up_cells(request);
  for (auto at = running.rbegin(); at != running.rend(); ++at) {
    interrupt(**at);
    count_promised(**at);
    (*at)->spec.continues.reset();
  }
  waiting_.insert(waiting_.begin(), running.begin(), running.end());
}

void Admission::read_anew(Lane& lane) {
  std::vector<Request*> whole;
  for (auto& [id, request] : requests_)
    if (request.sequence.valid() && request.finish != Finish::kFailed) whole.push_back(&request);
  for (Request* request : whole) {
    lane.forget_nodes(*request);
    lane.interrupt(*request);
  }
  lane.start_over();
  for (Request* request : whole) {
    lane.open(*request);
    lane.count_promised(*request);
  }
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

#include "engine/sequence_news.h"

#include <algorithm>
#include <variant>

namespace sluice {

namespace {

template <class Update>
bool is_of(const PathUpdate& update, SequenceId sequence) {
  return std::holds_alternative<Update>(update) && sequence_of(update) == sequence;
}

}  // namespace

std::vector<PathUpdate>::iterator SequenceNews::beginning(SequenceId sequence) {
  return std::find_if(waiting_.begin(), waiting_.end(),
                      [sequence](const PathUpdate& update) { return is_of<Fork>(update, sequence); });
}

// Of what has not gone out itself, that with which it begins is forked: then it may end without having been heard of.
void SequenceNews::fork(SequenceId sequence, SequenceId from, size_t length, const SamplingParams& sampling,
                        int32_t checkpoint) {
  Fork fork{sequence, from, static_cast<int32_t>(length), sampling, checkpoint};
  const auto first = beginning(from);
  if (first == waiting_.end()) return waiting_.emplace_back(std::move(fork)), void();
  fork.from = std::get<Fork>(*first).from;
  waiting_.insert(std::next(first), std::move(fork));
}

void SequenceNews::truncate(SequenceId sequence, size_t length, const SamplingParams& sampling, int32_t checkpoint) {
  if (unopened_.contains(sequence)) return open(sequence, sampling, checkpoint);  // there is nothing to be cut
  auto kept = static_cast<int32_t>(length);
  if (const auto first = beginning(sequence); first != waiting_.end()) {
    auto& fork = std::get<Fork>(*first);
    fork.length = std::min(fork.length, kept);
    fork.sampling = sampling;
    fork.checkpoint = checkpoint;
    return;
  }
  // The shorter one of two says all: nothing lies between them but forks of what both keep.
  for (const PathUpdate& update : waiting_)
    if (is_of<Truncate>(update, sequence)) kept = std::min(kept, std::get<Truncate>(update).length);
  std::erase_if(waiting_, [sequence](const PathUpdate& update) { return is_of<Truncate>(update, sequence); });
  waiting_.emplace_back(Truncate{sequence, kept, sampling, checkpoint});
}

void SequenceNews::close(SequenceId sequence) {
  if (unopened_.erase(sequence) > 0) return;
  const bool heard_of = beginning(sequence) == waiting_.end();
  std::erase_if(waiting_, [sequence](const PathUpdate& update) { return sequence_of(update) == sequence; });
  if (heard_of) waiting_.emplace_back(Close{sequence});
}

size_t SequenceNews::known(SequenceId sequence, size_t committed) const {
  const auto waits = [sequence](const PathUpdate& update) { return is_of<Commit>(update, sequence); };
  const auto waiting = static_cast<size_t>(std::count_if(waiting_.begin(), waiting_.end(), waits));
  return committed - std::min(committed, waiting);
}

void SequenceNews::need(SequenceId sequence) {
  const auto unopened = unopened_.find(sequence);
  if (unopened == unopened_.end()) return;
  waiting_.emplace_back(std::move(unopened->second));
  unopened_.erase(unopened);
}

}  // namespace sluice

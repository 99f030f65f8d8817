#include "engine/sequence_news.h"

#include <algorithm>
#include <variant>

namespace sluice {

void SequenceNews::truncate(SequenceId sequence, int32_t length, const SamplingParams& sampling) {
  if (const auto unopened = unopened_.find(sequence); unopened != unopened_.end()) {
    unopened->second = sampling;  // there is nothing to be cut
    return;
  }
  // With nothing in between the shorter one of two says all.
  for (PathUpdate& update : waiting_)
    if (auto* cut = std::get_if<Truncate>(&update); cut != nullptr && cut->sequence == sequence) {
      *cut = {sequence, std::min(cut->length, length), sampling};
      return;
    }
  waiting_.push_back(Truncate{sequence, length, sampling});
}

void SequenceNews::close(SequenceId sequence) {
  if (unopened_.erase(sequence) > 0) return;
  std::erase_if(waiting_, [sequence](const PathUpdate& update) {  // nobody will ask
    return std::visit([sequence](const auto& known) { return known.sequence == sequence; }, update);
  });
  waiting_.push_back(Close{sequence});
}

void SequenceNews::need(SequenceId sequence) {
  const auto unopened = unopened_.find(sequence);
  if (unopened == unopened_.end()) return;
  waiting_.push_back(Open{sequence, unopened->second});
  unopened_.erase(unopened);
}

}  // namespace sluice

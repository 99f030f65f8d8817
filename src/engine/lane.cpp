#include "engine/lane.h"

#include <cmath>
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

void Lane::came_out(const Flight& flight, double now) {
  links = std::min(links, std::max(0.0, now - flight.submitted - flight.busy));
}

size_t Lane::depth() const {
  if (stages.size() == 1)
    return 1;  // its outcome comes just after the word that it is free; what goes next depends on it
  double all = 0, slowest = 0;
  for (const StageClock& stage : stages) {
    all += stage.lately;
    slowest = std::max(slowest, stage.lately);
  }
  const bool unknown = std::any_of(stages.begin(), stages.end(), [](const StageClock& s) { return s.batches == 0; });
  if (unknown || !std::isfinite(links) || slowest <= 0) return std::numeric_limits<size_t>::max();
  constexpr double kIdle = 0.1;  // of a pass, for which the slowest stage may rather wait
  constexpr double kMost = 1e6;
  return static_cast<size_t>(std::clamp(std::ceil((all + links) / slowest - kIdle), 1.0, kMost));
}

}  // namespace sluice

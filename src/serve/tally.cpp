#include "serve/tally.h"

#include <algorithm>

namespace sluice {

void Histogram::saw(double value, uint64_t times) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  counts_[static_cast<size_t>(bound - bounds_.begin())] += times;
  sum_ += value * static_cast<double>(times);
}

void Counts::add(const Request& request) {
  const RequestStats& stats = request.stats;
  if (request.has_begun()) {
    prompt_tokens += stats.prompt_tokens;
    reused_tokens += stats.reused_tokens;
  }
  answer_tokens += static_cast<int64_t>(request.n_answer());
  verifications += stats.verifications;
  drafted += stats.drafted;
  accepted += stats.accepted;
  flushes += stats.flushes;
  replays += stats.replays;
}

}  // namespace sluice

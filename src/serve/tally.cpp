#include "serve/tally.h"

#include <algorithm>

namespace sluice {

void Histogram::saw(double value, uint64_t times) {
  const auto bound = std::lower_bound(bounds.begin(), bounds.end(), value);
  counts[static_cast<size_t>(bound - bounds.begin())] += times;
  sum += value * static_cast<double>(times);
}

void Counts::add(const Request& request) {
  const RequestStats& stats = request.stats;
  if (request.has_begun()) {
    prompt_tokens += stats.prompt_tokens;
    reused_tokens += stats.reused_tokens;
  }
  answer_tokens += static_cast<int64_t>(request.n_generated());
  verifications += stats.verifications;
  drafted += stats.drafted;
  accepted += stats.accepted;
  flushes += stats.flushes;
  replays += stats.replays;
}

}  // namespace sluice

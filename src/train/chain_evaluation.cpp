#include "train/chain_evaluation.h"

#include <algorithm>

namespace sluice {

void ChainEvaluation::add(const std::vector<std::vector<bool>>& right) {
  const size_t n = right.front().size();
  const auto accepted = [&](size_t at, size_t m) {  // of m tokens drafted there
    size_t j = 0;
    while (j < m && at < right[j].size() && right[j][at]) ++j;
    return j;
  };
  for (size_t i = 0; i < n; ++i) {
    const size_t run = accepted(i, right.size());
    for (size_t j = 0; j < right.size() && j <= run && i < right[j].size(); ++j) {
      ++reached_[j];
      right_[j] += right[j][i];
    }
  }
  for (size_t m = 1; m <= right.size(); ++m)
    for (size_t i = 0; i < n; ++rounds_[m - 1]) {
      const size_t step = std::min(accepted(i, m) + 1, n - i);
      tokens_[m - 1] += static_cast<int64_t>(step);
      i += step;
    }
}

nlohmann::json ChainEvaluation::summary() {
  std::vector<double> top1, lengths;
  for (size_t j = 0; j < right_.size(); ++j) {
    top1.push_back(reached_[j] > 0 ? static_cast<double>(right_[j]) / static_cast<double>(reached_[j]) : 0.0);
    lengths.push_back(rounds_[j] > 0 ? static_cast<double>(tokens_[j]) / static_cast<double>(rounds_[j]) : 0.0);
  }
  *this = ChainEvaluation(right_.size());
  return {{"top1_by_depth", top1}, {"accepted_length", lengths}};
}

}  // namespace sluice

#include "train/closeness.h"

#include <algorithm>
#include <utility>

namespace sluice {

void Closeness::add(const Output& output, const torch::Tensor& logits, const torch::Tensor& last_states) {
  divergence_ += output.divergence(logits, output.target_probabilities(last_states)).item<double>();
  for (const double o : output.overlaps(logits, output.target_logits(last_states), 50)) overlap_ += o;
  positions_ += logits.size(0);
}

void Closeness::report(nlohmann::json& summary) {
  const auto n = static_cast<double>(std::max<int64_t>(1, std::exchange(positions_, 0)));
  summary["kl"] = std::exchange(divergence_, 0.0) / n;
  summary["overlap"] = std::exchange(overlap_, 0.0) / n;
}

}  // namespace sluice

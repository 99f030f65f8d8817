#include "verify/lossy.h"

#include <algorithm>

namespace sluice {

SamplingParams distribution_of(SamplingParams sampling) {
  if (sampling.temperature > 0) return sampling;
  sampling.temperature = 1.0f;
  sampling.top_k = 0;
  sampling.top_p = 1.0f;
  sampling.min_p = 0.0f;
  return sampling;
}

std::optional<Token> choose_child(const TargetDistribution& p, const Draws& children, const SamplingParams& sampling) {
  const auto child = [&](Token token) {
    return std::find_if(children.q.begin(), children.q.end(), [&](const Candidate& c) { return c.token == token; });
  };
  double before = 0.0;
  auto best = children.q.end();
  for (const auto& entry : p.entries) {
    if (sampling.rule == Rule::kTopP && before >= static_cast<double>(sampling.accept_p)) break;
    before += entry.probability;
    const auto at = child(entry.token);
    if (at == children.q.end()) continue;
    if (best == children.q.end() || at->probability > best->probability) best = at;
    if (sampling.rule == Rule::kRelaxed) break;
  }
  if (best == children.q.end()) return std::nullopt;
  return best->token;
}

}  // namespace sluice

#include "verify/lossy.h"

#include <numeric>

namespace sluice {

std::optional<Token> choose_child(std::span<const float> weights, const Draws& children,
                                  const SamplingParams& sampling) {
  const auto weight = [&](Token token) { return weights[static_cast<size_t>(token)]; };
  const auto likelier = [&](Token a, Token b) { return weight(a) > weight(b) || (weight(a) == weight(b) && a < b); };
  // Whether what is likelier than the token falls short of p.
  const double wanted = sampling.accept_p * std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto is_among_likeliest = [&](Token token) {
    double mass = 0.0;
    for (const float w : weights) mass += w > weight(token) ? w : 0.0f;
    return mass < wanted;
  };
  const Candidate* best = nullptr;
  for (const Candidate& child : children.q) {
    const bool relaxed = sampling.rule == Rule::kRelaxed;
    if (!relaxed && !is_among_likeliest(child.token)) continue;
    if (best == nullptr || (!relaxed && child.probability > best->probability) ||
        ((relaxed || child.probability == best->probability) && likelier(child.token, best->token)))
      best = &child;
  }
  return best == nullptr ? std::nullopt : std::optional(best->token);
}

}  // namespace sluice

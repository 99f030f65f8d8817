#include "source/draw.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/math.h"
#include "base/random.h"

namespace sluice {

std::vector<Candidate> draft_distribution(const TopLogits& top, const SamplingParams& sampling) {
  if (top.entries.empty()) return {};
  if (sampling.temperature == 0.0f) return {{top.entries[0].token, 1.0f}};
  std::vector<double> weights;
  for (const auto& entry : top.entries)
    weights.push_back(exp_f64((static_cast<double>(entry.logit) - top.entries[0].logit) / sampling.temperature));
  const size_t kept = kept_by_filters(weights, sampling);
  double sum = 0.0;
  for (size_t i = 0; i < kept; ++i) sum += weights[i];
  std::vector<Candidate> q;
  for (size_t i = 0; i < kept; ++i)
    if (const auto p = static_cast<float>(weights[i] / sum); p > 0.0f) q.push_back({top.entries[i].token, p});
  return q;
}

std::vector<Candidate> saguaro(std::vector<Candidate> q, const Saguaro& by) {
  if (by.c == 1.0) return q;
  double sum = 0.0;
  for (size_t i = 0; i < q.size(); ++i) {
    if (i < static_cast<size_t>(by.f)) q[i].probability = static_cast<float>(by.c * q[i].probability);
    sum += q[i].probability;
  }
  for (Candidate& candidate : q) candidate.probability = static_cast<float>(candidate.probability / sum);
  return q;
}

Draws draw_candidates(std::vector<Candidate> q, const Saguaro& by, const SamplingParams& sampling, int32_t position,
                      int32_t distinct, bool replacement) {
  const DrawSite site{.seed = sampling.seed,
                      .choice = sampling.choice,
                      .position = static_cast<uint32_t>(position),
                      .purpose = Purpose::kDraft};
  Draws draws{.q = saguaro(std::move(q), by), .replacement = replacement, .saguaro = by};
  const size_t wanted = std::min(static_cast<size_t>(distinct), draws.q.size());
  const uint32_t most = 8 * static_cast<uint32_t>(distinct);  // with replacement an unlikely token may never come
  std::set<Token> seen;
  for (uint32_t i = 0; seen.size() < wanted && i < most; ++i) {
    double mass = 0.0;
    for (const Candidate& c : draws.q)
      if (replacement || !seen.contains(c.token)) mass += c.probability;
    double left = uniform(site, i) * mass;
    Token drawn = kNoToken;
    for (const Candidate& c : draws.q) {
      if (!replacement && seen.contains(c.token)) continue;
      drawn = c.token;
      if ((left -= c.probability) < 0.0) break;
    }
    draws.tokens.push_back(drawn);
    seen.insert(drawn);
  }
  return draws;
}

}  // namespace sluice

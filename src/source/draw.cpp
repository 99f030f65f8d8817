#include "source/draw.h"

#include <algorithm>

#include "base/math.h"
#include "source/policy.h"

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

std::vector<Candidate> bent(std::vector<Candidate> q, const Bend& by) {
  if (by.c == 1.0) return q;
  double sum = 0.0;
  for (size_t i = 0; i < q.size(); ++i) {
    if (i < static_cast<size_t>(by.f)) q[i].probability = static_cast<float>(by.c * q[i].probability);
    sum += q[i].probability;
  }
  for (Candidate& candidate : q) candidate.probability = static_cast<float>(candidate.probability / sum);
  std::erase_if(q, [](const Candidate& c) { return !(c.probability > 0.0f); });
  return q;
}

Draws draw_candidates(std::vector<Candidate> q, const Bend& by, const DrawSite& site, int32_t count, bool replacement,
                      const Choose& choose) {
  Draws draws{.q = bent(std::move(q), by), .replacement = replacement, .bend = by};
  std::vector<double> weights;
  for (const Candidate& c : draws.q) weights.push_back(c.probability);
  const size_t n = replacement ? static_cast<size_t>(count) : std::min(static_cast<size_t>(count), weights.size());
  for (uint32_t i = 0; i < n; ++i) {
    const size_t drawn = choose(site, i, weights);
    draws.tokens.push_back(draws.q[drawn].token);
    if (!replacement) weights[drawn] = 0.0;
  }
  return draws;
}

namespace {

// Of the first `n_drawn` candidates, which were drawn in this order, and of the others, which share what is left.
void expect_acceptance(std::vector<Candidate>& candidates, size_t n_drawn) {
  double left = 1.0, q_left = 1.0;  // nothing was accepted so far; what q gives to those that come
  float most = 1.0f;                // candidates are ranked
  for (size_t i = 0; i < candidates.size(); ++i) {
    const double q = candidates[i].probability, share = std::min(1.0, q / std::max(q_left, 1e-6));
    const double taken = i < n_drawn ? policy::kAcceptedAnyhow + (1.0 - policy::kAcceptedAnyhow) * share : share;
    most = std::min(most, static_cast<float>(left * taken));
    candidates[i].probability = most;
    if (i >= n_drawn) continue;
    left *= 1.0 - taken;
    q_left -= q;
  }
}

}  // namespace

std::vector<Candidate> ranked(const Draws& draws, const std::vector<Candidate>& q) {
  std::vector<Candidate> candidates;
  const auto add = [&](Token token) {
    const auto is_it = [token](const Candidate& c) { return c.token == token; };
    if (std::none_of(candidates.begin(), candidates.end(), is_it))
      candidates.push_back(*std::find_if(q.begin(), q.end(), is_it));
  };
  for (const Token token : draws.tokens) add(token);
  const size_t n_drawn = candidates.size();
  for (const Candidate& c : q) add(c.token);
  expect_acceptance(candidates, n_drawn);
  return candidates;
}

}  // namespace sluice

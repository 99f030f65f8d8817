#include "verify/reject.h"

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "base/result.h"

namespace sluice {

namespace {

double probability(const std::vector<TargetDistribution::Entry>& entries, Token token) {
  for (const auto& entry : entries)
    if (entry.token == token) return entry.probability;
  return 0.0;
}

// Entries add up to 1 again; false if nothing is left.
bool normalise(std::vector<TargetDistribution::Entry>& entries) {
  double sum = 0.0;
  for (const auto& entry : entries) sum += entry.probability;
  if (!(sum > 0.0)) return false;
  for (auto& entry : entries) entry.probability /= sum;
  return true;
}

}  // namespace

Token draw_by_rejection(const TargetDistribution& target, const Draws& draws, const SamplingParams& sampling,
                        int32_t position) {
  DrawSite site{.seed = sampling.seed,
                .choice = sampling.choice,
                .position = static_cast<uint32_t>(position),
                .purpose = Purpose::kAccept};
  std::vector<TargetDistribution::Entry> p = target.entries, q;
  for (const Candidate& c : draws.q) q.push_back({c.token, c.probability});
  normalise(q);
  for (size_t i = 0; i < draws.tokens.size(); ++i) {
    const Token token = draws.tokens[i];
    const double drafted = probability(q, token);
    SLUICE_CHECK(drafted > 0.0, "a token was drawn that its source could not draw");
    if (uniform(site, static_cast<uint32_t>(i)) * drafted < probability(p, token)) return token;
    auto residual = p;
    for (auto& entry : residual) entry.probability = std::max(0.0, entry.probability - probability(q, entry.token));
    if (normalise(residual)) p = std::move(residual);  // else p = q but for rounding, and a rejection is rounding too
    if (draws.replacement) continue;
    std::erase_if(q, [&](const auto& entry) { return entry.token == token; });
    if (!normalise(q)) break;
  }
  site.purpose = Purpose::kResidual;
  double left = uniform(site, 0);
  for (const auto& entry : p)
    if ((left -= entry.probability) < 0.0) return entry.token;
  return std::max_element(p.begin(), p.end(),
                          [](const auto& a, const auto& b) { return a.probability < b.probability; })
      ->token;
}

}  // namespace sluice

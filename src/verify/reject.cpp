#include "verify/reject.h"

#include <algorithm>
#include <array>
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
                        int32_t position, const Choose& choose) {
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
    const double taken = std::min(1.0, probability(p, token) / drafted);
    if (choose(site, static_cast<uint32_t>(i), std::array{taken, 1.0 - taken}) == 0) return token;
    auto residual = p;
    for (auto& entry : residual) entry.probability = std::max(0.0, entry.probability - probability(q, entry.token));
    if (normalise(residual)) p = std::move(residual);  // else p = q but for rounding, and a rejection is rounding too
    if (draws.replacement) continue;
    std::erase_if(q, [&](const auto& entry) { return entry.token == token; });
    if (!normalise(q)) break;
  }
  site.purpose = Purpose::kResidual;
  std::vector<double> weights;
  for (const auto& entry : p) weights.push_back(entry.probability);
  return p[choose(site, 0, weights)].token;
}

std::vector<SaguaroOdds> saguaro_odds(const TargetDistribution& target, const Draws& draws) {
  const auto cached = [&](size_t i) { return i < static_cast<size_t>(draws.saguaro.f); };
  std::vector<double> base;  // q before it was bent, up to a factor
  for (size_t i = 0; i < draws.q.size(); ++i)
    base.push_back(draws.q[i].probability / (cached(i) ? draws.saguaro.c : 1.0));
  std::vector<double> p;  // of the same tokens; what else the target may draw is never drafted
  for (const Candidate& c : draws.q) p.push_back(probability(target.entries, c.token));

  std::vector<SaguaroOdds> odds;
  for (const double c : kSaguaroChoices) {
    double sum = 0.0;
    for (size_t i = 0; i < base.size(); ++i) sum += base[i] * (cached(i) ? c : 1.0);
    double accepted = 0.0, of_cached = 0.0, next = 0.0, drawn_of_cached = 0.0;
    for (size_t i = 0; i < base.size(); ++i) {
      const double q = base[i] * (cached(i) ? c : 1.0) / sum;
      accepted += std::min(p[i], q);
      const double residual = std::max(0.0, p[i] - q);
      if (cached(i)) {
        of_cached += residual;
        drawn_of_cached += std::max(0.0, q - p[i]);
      } else if (i == static_cast<size_t>(draws.saguaro.f)) {
        next = residual;
      }
    }
    // The mass that is rejected is the mass of the residual. A rejected token leaves its place to the next likeliest.
    const double rejected = 1.0 - accepted;
    constexpr double kRounding = 1e-6;
    const double hit = rejected > kRounding ? (of_cached + drawn_of_cached / rejected * next) / rejected : 1.0;
    odds.push_back({.accepted = std::min(1.0, accepted), .hit = std::min(1.0, hit)});
  }
  return odds;
}

}  // namespace sluice

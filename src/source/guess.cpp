#include "source/guess.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/math.h"
#include "base/random.h"
#include "source/policy.h"
#include "verify/sampler.h"

namespace sluice {

namespace {

// NaN as -inf, +inf as the largest float: as the sampler takes them. `kept` holds what had to be changed.
std::span<const float> usable(std::span<const float> logits, std::vector<float>& kept) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  if (std::all_of(logits.begin(), logits.end(), [](float logit) { return logit <= kLargest; })) return logits;
  kept.assign(logits.begin(), logits.end());
  for (float& logit : kept) logit = std::isnan(logit) ? -INFINITY : std::min(logit, kLargest);
  return kept;
}

}  // namespace

TopLogits top_logits(std::span<const float> logits, int32_t n_tokens) {
  std::vector<float> numbers;
  logits = usable(logits.first(std::min(logits.size(), static_cast<size_t>(n_tokens))), numbers);
  const auto better = [](const TopLogits::Entry& a, const TopLogits::Entry& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  };
  TopLogits top;
  auto& heap = top.entries;  // the worst of the kept ones in front
  heap.reserve(TopLogits::kKept + 1);
  float bar = -INFINITY;  // what a logit must exceed; later tokens lose ties
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] > bar)) continue;
    heap.push_back({static_cast<Token>(i), logits[i]});
    std::push_heap(heap.begin(), heap.end(), better);
    if (heap.size() > TopLogits::kKept) {
      std::pop_heap(heap.begin(), heap.end(), better);
      heap.pop_back();
    }
    if (heap.size() == TopLogits::kKept) bar = heap.front().logit;
  }
  std::sort_heap(heap.begin(), heap.end(), better);
  top.log_sum = log_sum_exp(logits);
  return top;
}

size_t kept_by_filters(const std::vector<double>& weights, const SamplingParams& sampling) {
  size_t kept = weights.size();
  if (sampling.top_k > 0) kept = std::min(kept, static_cast<size_t>(sampling.top_k));
  double mass = 0.0;
  for (size_t i = 0; i < kept; ++i) mass += weights[i];
  double sum = 0.0;
  for (size_t i = 0; sampling.top_p < 1.0f && i < kept; ++i)
    if ((sum += weights[i]) >= static_cast<double>(sampling.top_p) * mass) kept = i + 1;
  while (kept > 1 && weights[kept - 1] < static_cast<double>(sampling.min_p) * weights[0]) --kept;
  return kept;
}

namespace {

// Logits that are no numbers make no guess likely.
float probability(double log_probability) {
  return log_probability <= 0.0 ? static_cast<float>(exp_f64(log_probability)) : (log_probability > 0.0 ? 1.0f : 0.0f);
}

}  // namespace

std::vector<Candidate> guess(const TopLogits& top, const SamplingParams& sampling, int32_t position, int32_t count) {
  struct Scored {
    Token token;
    double score;
  };
  std::vector<Scored> scored;
  for (const auto& [token, logit] : top.entries) scored.push_back({token, logit});
  double log_sum = top.log_sum;
  if (sampling.temperature > 0.0f && !scored.empty()) {
    const double temperature = sampling.temperature;
    std::vector<double> weights;
    for (const Scored& s : scored) weights.push_back(exp_f64((s.score - scored[0].score) / temperature));
    const size_t kept = kept_by_filters(weights, sampling);
    const DrawSite site{.seed = sampling.seed,
                        .choice = sampling.choice,
                        .position = static_cast<uint32_t>(position),
                        .purpose = Purpose::kSample};
    for (Scored& s : scored) s.score += temperature * gumbel(site, static_cast<uint32_t>(s.token));
    const auto best = [](auto begin, auto end) {
      return std::max_element(begin, end, [](const Scored& a, const Scored& b) { return a.score < b.score; });
    };
    const auto filtered = scored.begin() + static_cast<ptrdiff_t>(kept);
    if (filtered != scored.end()) {
      const double above = best(filtered, scored.end())->score - best(scored.begin(), filtered)->score;
      for (auto s = filtered; s != scored.end(); ++s) s->score -= std::max(0.0, above) + policy::kFilteredBelow;
    }
    std::stable_sort(scored.begin(), scored.end(), [](const Scored& a, const Scored& b) { return a.score > b.score; });
    double sum = 0.0;
    for (const Scored& s : scored) sum += exp_f64(s.score - scored[0].score);
    log_sum = scored[0].score + log_f64(sum);
  }
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < std::min(scored.size(), static_cast<size_t>(count)); ++i)
    candidates.push_back({scored[i].token, probability(scored[i].score - log_sum)});
  return candidates;
}

}  // namespace sluice

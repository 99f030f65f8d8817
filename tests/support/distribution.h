// What a sampler draws from, as a list.
#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "verify/sampler.h"

namespace sluice::test {

struct Chance {
  Token token;
  double probability;
};

// What may be drawn, the likeliest first (ties by id), with probabilities that sum to 1.
inline std::vector<Chance> distribution(Sampler& sampler, const SamplingParams& params, std::span<const float> logits,
                                        std::span<const Token> history) {
  const auto p = sampler.probabilities(params, logits, history);
  std::vector<Chance> chances;
  for (size_t i = 0; i < p.size(); ++i)
    if (p[i] > 0.0) chances.push_back({static_cast<Token>(i), p[i]});
  std::ranges::stable_sort(chances, std::greater(), &Chance::probability);
  return chances;
}

}  // namespace sluice::test

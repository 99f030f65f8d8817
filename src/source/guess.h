// From a draft model's logits to ranked candidates for the target's next token.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tree/token_tree.h"
#include "wire/draws.h"
#include "wire/sampling.h"

namespace sluice {

// What is kept of a row of logits: its kKept largest, the largest first (ties by id), and the log of the sum of all
// exponentials.
struct TopLogits {
  static constexpr size_t kKept = TokenTree::kMaxCandidates;
  struct Entry {
    Token token = kNoToken;
    float logit = 0.0f;
  };
  std::vector<Entry> entries;
  double log_sum = 0.0;
};

// logits: [n_vocab]; NaN and what lies beyond `n_tokens`, the target's vocabulary, are left out, and +inf is the
// largest float.
TopLogits top_logits(std::span<const float> logits, int32_t n_tokens);

// How many of the first tokens, weighted by `weights` (descending, at temperature already), the filters keep.
size_t kept_by_filters(const std::vector<double>& weights, const SamplingParams& sampling);

// At most `count` candidates for the token at `position`, the likeliest first.
//
// Greedy: the draft's own probabilities. Sampled: rule `match` draws the target's token as argmax over
// logit / T + noise, with noise that anybody can compute, so the source perturbs its logits by the same T x noise and
// ranks by the sum; its softmax is taken for the probability, which becomes the greedy one as T goes to 0. What the
// request's filters would keep of the draft's own distribution goes first: at least the best guess is one of those.
std::vector<Candidate> guess(const TopLogits& top, const SamplingParams& sampling, int32_t position, int32_t count);

}  // namespace sluice

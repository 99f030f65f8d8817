#include "verify/sampler.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>

#include "base/math.h"
#include "base/random.h"

// A program for any processor would call a function for each of the multiplications and additions that exponentials are
// made of, of a whole vocabulary: so there is a copy for those that do both at once, chosen at start. No bit depends on
// it.
#if defined(__x86_64__) && !defined(__FMA__) && !defined(__clang__)
#define SLUICE_FUSED [[gnu::target_clones("arch=x86-64-v3", "default")]]
#else
#define SLUICE_FUSED
#endif

namespace sluice {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();
constexpr size_t kLanes =
    16;  // partial sums of a whole vocabulary, so that their order is fixed and vectors can be used
constexpr size_t kBlock = 64;     // tokens that select() looks at together
constexpr double kSlack = 1.001;  // covers the rounding of a test in floats that must never reject a winner

// NaN counts as -inf, +inf as the largest float.
inline float usable(float logit) {
  const float high = logit > std::numeric_limits<float>::max() ? std::numeric_limits<float>::max() : logit;
  return high >= kNegativeInfinity ? high : kNegativeInfinity;
}

float maximum(std::span<const float> values) {
  float lanes[kLanes];
  std::fill_n(lanes, kLanes, kNegativeInfinity);
  const size_t whole = values.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
  float best = *std::max_element(lanes, lanes + kLanes);
  for (size_t i = whole; i < values.size(); ++i) best = std::max(best, values[i]);
  return best;
}

// Sum in double over f32 terms term(i), i < n; lane j adds the terms j, j + 16, …, then the lanes are added in order.
template <class Term>
[[gnu::always_inline]] inline double sum_in_lanes(size_t n, Term term) {
  double lanes[kLanes] = {};
  const size_t whole = n / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    float terms[kLanes];
    for (size_t j = 0; j < kLanes; ++j) terms[j] = term(i + j);
    for (size_t j = 0; j < kLanes; ++j) lanes[j] += terms[j];
  }
  for (size_t i = whole; i < n; ++i) lanes[i - whole] += term(i);
  return std::accumulate(lanes, lanes + kLanes, 0.0);
}

SLUICE_FUSED double sum_of_exponentials(const float* logits, size_t n, float best) {
  return sum_in_lanes(
      n, [=](size_t i) __attribute__((always_inline)) { return exp_f32(logits[i] - best); });
}
SLUICE_FUSED void find_exponentials(const float* logits, size_t n, float best, float* out) {
  for (size_t i = 0; i < n; ++i) out[i] = exp_f32(logits[i] - best);
}
SLUICE_FUSED void find_weights(const float* logits, size_t n, float best, double inverse_temperature, float* out) {
  for (size_t i = 0; i < n; ++i)
    out[i] = exp_f32(static_cast<float>((static_cast<double>(logits[i]) - best) * inverse_temperature));
}

// Most masks hold nearly all tokens, or hardly any.
void keep(const TokenMask& permitted, std::span<float> logits) {
  constexpr size_t kBits = TokenMask::kBits;
  for (size_t first = 0; first < logits.size(); first += kBits) {
    const uint32_t word = permitted.word(first / kBits);
    const auto some = logits.subspan(first, std::min(kBits, logits.size() - first));
    if (word == 0) std::fill(some.begin(), some.end(), kNegativeInfinity);
    if (word == 0 || word == ~uint32_t{0}) continue;
    for (size_t i = 0; i < some.size(); ++i)
      if ((word >> i & 1) == 0) some[i] = kNegativeInfinity;
  }
}

}  // namespace

double log_sum_exp(std::span<const float> logits) {
  const float best = maximum(logits);
  if (best == kNegativeInfinity) return 0.0;
  return best + log_f64(sum_of_exponentials(logits.data(), logits.size(), best));
}

Status check(const SamplingParams& params, int32_t n_vocab) {
  // Written so that NaN fails every test.
  if (!(params.temperature >= 0.0f) || !std::isfinite(params.temperature))
    return input_error("the temperature must be 0 (greedy) or a positive number, not " +
                       std::to_string(params.temperature));
  if (params.top_k < 0) return input_error("top-k must be 0 (off) or positive, not " + std::to_string(params.top_k));
  if (!(params.top_p > 0.0f && params.top_p <= 1.0f))
    return input_error("top-p must be above 0 and at most 1 (off), not " + std::to_string(params.top_p));
  if (!(params.min_p >= 0.0f && params.min_p <= 1.0f))
    return input_error("min-p must be from 0 (off) to 1, not " + std::to_string(params.min_p));
  if (!(params.repeat_penalty > 0.0f) || !std::isfinite(params.repeat_penalty))
    return input_error("the repetition penalty must be a positive number (1 is off), not " +
                       std::to_string(params.repeat_penalty));
  for (const auto& [name, penalty] :
       {std::pair("presence", params.presence_penalty), std::pair("frequency", params.frequency_penalty)})
    if (!std::isfinite(penalty))
      return input_error("the " + std::string(name) + " penalty must be a finite number (0 is off)");
  if (params.answer_from < 0)
    return input_error("the answer must begin at position 0 or later, not " + std::to_string(params.answer_from));
  if (!(params.accept_p > 0.0f && params.accept_p <= 1.0f))
    return input_error(
        "the share of the target's mass in which guesses are accepted must be above 0 and at most 1, not " +
        std::to_string(params.accept_p));
  if (params.top_logprobs < 0 || params.top_logprobs > kMostTopLogprobs)
    return input_error("the likeliest tokens to be named must be 0 to " + std::to_string(kMostTopLogprobs) + ", not " +
                       std::to_string(params.top_logprobs));
  if (!params.grammar.empty() && is_lossy(params.rule))
    return input_error("an answer of a grammar is verified by the rules match and reject alone");
  if (params.grammar.rules.size() > kLongestGrammar)
    return input_error("the grammar has " + std::to_string(params.grammar.rules.size()) + " bytes, of " +
                       std::to_string(kLongestGrammar) + " at most");
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < 0 || token >= n_vocab)
      return input_error("the logit bias names token " + std::to_string(token) + "; the model's ids go from 0 to " +
                         std::to_string(n_vocab - 1));
    if (!std::isfinite(bias))
      return input_error("the logit bias of token " + std::to_string(token) + " must be a finite number");
  }
  return {};
}

// The vocabulary in parts that are whole multiples of what the loops over it look at together.
template <class Body>
void Sampler::in_parts(size_t n, Body body) const {
  constexpr size_t kPart = 8192;
  if (spread_.threads() == 1 || n <= kPart) return body(0, n);
  spread_.each((n + kPart - 1) / kPart, [&](size_t i, size_t) { body(i * kPart, std::min(n, (i + 1) * kPart)); });
}

Draw Sampler::draw(const SamplingParams& params, std::span<const float> logits, std::span<const Token> history,
                   int32_t position, Constraint* constraint) {
  load(logits);
  adjust(params, history, constraint);
  Token token = likeliest();
  if (params.temperature > 0.0f && best_ != kNegativeInfinity) {
    weigh(params.temperature);
    filter(params);
    token = gumbel_max(params, position);
  }
  return {token, logprob(logits, token)};
}

float Sampler::logprob(std::span<const float> logits, Token token) const {
  const float raw = usable(logits[token]);
  constexpr double kLowest = std::numeric_limits<float>::lowest();
  return raw == kNegativeInfinity ? 0.0f : static_cast<float>(std::max(kLowest, raw - normaliser_));
}

std::vector<TokenLogprob> Sampler::top_logprobs(std::span<const float> logits, int32_t n) const {
  std::vector<TokenLogprob> top;  // a heap, the least likely in front; logits until all are there
  const auto likelier = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
  };
  for (size_t i = 0; n > 0 && i < logits.size(); ++i) {
    const float logit = usable(logits[i]);
    const bool full = top.size() == static_cast<size_t>(n);
    if (logit == kNegativeInfinity || (full && logit <= top.front().logprob)) continue;
    if (full) {
      std::pop_heap(top.begin(), top.end(), likelier);
      top.pop_back();
    }
    top.push_back({static_cast<Token>(i), logit});
    std::push_heap(top.begin(), top.end(), likelier);
  }
  std::sort_heap(top.begin(), top.end(), likelier);
  for (TokenLogprob& one : top) one.logprob = logprob(logits, one.token);
  return top;
}

std::span<const double> Sampler::probabilities(const SamplingParams& params, std::span<const float> logits,
                                               std::span<const Token> history, Constraint* constraint) {
  load(logits);
  adjust(params, history, constraint);
  probabilities_.resize(logits_.size());
  if (params.temperature == 0.0f || best_ == kNegativeInfinity) {
    std::fill(probabilities_.begin(), probabilities_.end(), 0.0);
    probabilities_[likeliest()] = 1.0;
    return probabilities_;
  }
  weigh(params.temperature);
  filter(params);
  if (filtered_) {
    const double sum = sum_in_lanes(survivors_.size(), [&](size_t i) { return weights_[survivors_[i]]; });
    std::fill(probabilities_.begin(), probabilities_.end(), 0.0);
    for (const Token token : survivors_) probabilities_[token] = weights_[token] / sum;
  } else {
    const double sum = sum_in_lanes(weights_.size(), [&](size_t i) { return weights_[i]; });
    in_parts(weights_.size(), [&](size_t first, size_t last) {
      for (size_t i = first; i < last; ++i) probabilities_[i] = weights_[i] / sum;
    });
  }
  return probabilities_;
}

std::span<const float> Sampler::weights(const SamplingParams& params, std::span<const float> logits,
                                        std::span<const Token> history, Constraint* constraint) {
  load(logits);
  adjust(params, history, constraint);
  if (best_ == kNegativeInfinity) best_ = 0.0f;  // no token is likelier than another: all weigh nothing
  weigh(params.temperature > 0.0f ? params.temperature : 1.0f);
  return weights_;
}

void Sampler::load(std::span<const float> logits) {
  SLUICE_CHECK(!logits.empty(), "a row of logits has the size of the vocabulary");
  logits_.resize(logits.size());
  in_parts(logits.size(), [&](size_t first, size_t last) {
    for (size_t i = first; i < last; ++i) logits_[i] = usable(logits[i]);
  });
  best_ = maximum_of_all();
  normaliser_ = normaliser();
}

float Sampler::maximum_of_all() {
  if (spread_.threads() == 1) return maximum(logits_);
  std::atomic<float> best = kNegativeInfinity;
  in_parts(logits_.size(), [&](size_t first, size_t last) {
    const float mine = maximum(std::span(logits_).subspan(first, last - first));
    float known = best.load();
    while (mine > known && !best.compare_exchange_weak(known, mine)) {
    }
  });
  return best;
}

// log_sum_exp(logits_), with the exponentials computed by all threads and added by one.
double Sampler::normaliser() {
  if (spread_.threads() == 1) return log_sum_exp(logits_);
  if (best_ == kNegativeInfinity) return 0.0;
  terms_.resize(logits_.size());
  in_parts(terms_.size(),
           [&](size_t first, size_t last) { find_exponentials(&logits_[first], last - first, best_, &terms_[first]); });
  return best_ + log_f64(sum_in_lanes(terms_.size(), [&](size_t i) { return terms_[i]; }));
}

float& Sampler::logit(Token token) {
  SLUICE_CHECK(token >= 0 && static_cast<size_t>(token) < logits_.size(), "a token outside the vocabulary");
  return logits_[token];
}

void Sampler::penalise_answer(const SamplingParams& params, std::span<const Token> history) {
  const auto answer = history.subspan(std::min(history.size(), static_cast<size_t>(params.answer_from)));
  said_.assign(answer.begin(), answer.end());
  std::sort(said_.begin(), said_.end());
  for (auto at = said_.begin(); at != said_.end();) {
    const auto end = std::upper_bound(at, said_.end(), *at);
    const float penalty = params.presence_penalty + static_cast<float>(end - at) * params.frequency_penalty;
    logit(*at) = usable(logit(*at) - penalty);
    at = end;
  }
}

// What changes the logits of single tokens.
void Sampler::adjust(const SamplingParams& params, std::span<const Token> history, Constraint* constraint) {
  if (const TokenMask* permitted = constraint != nullptr ? constraint->permitted() : nullptr) keep(*permitted, logits_);
  if (params.repeat_penalty != 1.0f) {
    seen_.assign(logits_.size(), false);
    for (const Token token : history) {
      float& value = logit(token);
      if (seen_[token]) continue;
      seen_[token] = true;
      value = usable(value > 0.0f ? value / params.repeat_penalty : value * params.repeat_penalty);
    }
  }
  const bool counts = params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f;
  if (counts) penalise_answer(params, history);
  for (const auto& [token, bias] : params.logit_bias) logit(token) = usable(logit(token) + bias);
  if (constraint != nullptr || params.repeat_penalty != 1.0f || counts || !params.logit_bias.empty())
    best_ = maximum_of_all();
}

Token Sampler::likeliest() const {
  return static_cast<Token>(std::find(logits_.begin(), logits_.end(), best_) - logits_.begin());
}

void Sampler::weigh(float temperature) {
  weights_.resize(logits_.size());
  const double inverse = 1.0 / temperature;
  in_parts(logits_.size(), [&](size_t first, size_t last) {
    find_weights(&logits_[first], last - first, best_, inverse, &weights_[first]);
  });
}

bool Sampler::likelier(Token a, Token b) const {
  return logits_[a] > logits_[b] || (logits_[a] == logits_[b] && a < b);
}

// survivors_ becomes the `count` likeliest tokens, in order. At least `count` tokens reach the count-th largest of the
// maxima of disjoint blocks, so everything below that is out before anything is sorted.
void Sampler::select(size_t count) {
  const size_t n = logits_.size();
  count = std::min(count, n);
  block_maxima_.clear();
  for (size_t i = 0; i < n; i += kBlock)
    block_maxima_.push_back(maximum(std::span(logits_).subspan(i, std::min(kBlock, n - i))));
  float threshold = kNegativeInfinity;
  const std::vector<float>& maxima = block_maxima_;
  if (count <= maxima.size()) {
    ranked_ = maxima;
    std::nth_element(ranked_.begin(), ranked_.begin() + (count - 1), ranked_.end(), std::greater<>());
    threshold = ranked_[count - 1];
  }
  survivors_.clear();
  for (size_t block = 0; block < maxima.size(); ++block) {
    if (maxima[block] < threshold) continue;
    for (size_t i = block * kBlock; i < std::min(n, (block + 1) * kBlock); ++i)
      if (logits_[i] >= threshold) survivors_.push_back(static_cast<Token>(i));
  }
  const auto order = [this](Token a, Token b) { return likelier(a, b); };
  if (count < survivors_.size())
    std::nth_element(survivors_.begin(), survivors_.begin() + count, survivors_.end(), order);
  survivors_.resize(count);
  std::sort(survivors_.begin(), survivors_.end(), order);
}

void Sampler::filter(const SamplingParams& params) {
  const size_t n = weights_.size();
  const bool by_count = params.top_k > 0 && static_cast<size_t>(params.top_k) < n;
  filtered_ = by_count || params.top_p < 1.0f || params.min_p > 0.0f;
  if (!filtered_) return;

  if (by_count) select(static_cast<size_t>(params.top_k));
  if (params.top_p < 1.0f) {
    const double total = by_count ? sum_in_lanes(survivors_.size(), [&](size_t i) { return weights_[survivors_[i]]; })
                                  : sum_in_lanes(n, [&](size_t i) { return weights_[i]; });
    const double wanted = static_cast<double>(params.top_p) * total;
    // Without top-k nothing is ranked yet: rank few tokens, and more of them only when they do not hold the mass.
    for (size_t count = 256;; count *= 16) {
      if (!by_count) select(count);
      double mass = 0.0;
      size_t kept = 0;
      while (kept < survivors_.size() && mass < wanted) mass += weights_[survivors_[kept++]];
      if (by_count || mass >= wanted || count >= n) {
        survivors_.resize(kept);
        break;
      }
    }
  } else if (!by_count) {  // min-p alone: whoever passes it, ranked
    survivors_.clear();
    for (size_t i = 0; i < n; ++i)
      if (weights_[i] >= params.min_p) survivors_.push_back(static_cast<Token>(i));
    std::sort(survivors_.begin(), survivors_.end(), [this](Token a, Token b) { return likelier(a, b); });
  }
  // The likeliest token always survives and has weight 1, so min-p compares weights as they are.
  while (weights_[survivors_.back()] < params.min_p || weights_[survivors_.back()] == 0.0f) survivors_.pop_back();
}

// For a token with score s and uniform u, gumbel = -log(-log u) <= -log(1 - u), so it can only beat a total V when
// 1 - u <= exp(s - V): its weight times exp(best - V). Nearly all tokens fail that test, or have a weight below any 1 -
// u, and cost no logarithm.
Token Sampler::gumbel_max(const SamplingParams& params, int32_t position) const {
  const Token start = likeliest();
  if (filtered_ || spread_.threads() == 1) return best_between(params, position, start, 0, weights_.size()).token;
  std::mutex mutex;
  Contender best;
  in_parts(weights_.size(), [&](size_t first, size_t last) {
    const Contender one = best_between(params, position, start, first, last);
    const std::lock_guard lock(mutex);
    const bool better = one.score > best.score || (one.score == best.score && one.token < best.token);
    if (best.token == kNoToken || better) best = one;
  });
  return best.token;
}

// The winner among `start` and the tokens from `first` on, before `last`; or all that the filters leave.
Sampler::Contender Sampler::best_between(const SamplingParams& params, int32_t position, Token start, size_t first,
                                         size_t last) const {
  const DrawSite site{params.seed, params.choice, static_cast<uint32_t>(position), Purpose::kSample};
  const double temperature = params.temperature;
  const auto score = [&](Token token) { return static_cast<double>(logits_[token]) / temperature; };
  const double best_score = static_cast<double>(best_) / temperature;

  Contender winner{.token = start};
  winner.score = score(winner.token) + gumbel(site, winner.token);
  double limit = kSlack * exp_f64(best_score - winner.score);
  const auto contend = [&](Token token, double complement) {
    if (complement > weights_[token] * limit) return;
    const double total = score(token) + gumbel(site, token);
    if (total > winner.score || (total == winner.score && token < winner.token)) {
      winner = {token, total};
      limit = kSlack * exp_f64(best_score - winner.score);
    }
  };

  constexpr double kSmallest = 0x1p-33;  // 1 - u is at least half a step of the generator's words
  if (filtered_) {
    for (const Token token : survivors_)
      if (weights_[token] * limit >= kSmallest) contend(token, 1.0 - uniform(site, token));
    return winner;
  }
  for (; first < last; first += 4) {
    const size_t end = std::min(first + 4, last);
    const float heaviest = *std::max_element(&weights_[first], &weights_[first] + (end - first));
    if (heaviest * limit < kSmallest) continue;
    const auto noise = uniform4(site, static_cast<uint32_t>(first / 4));
    for (size_t i = first; i < end; ++i) contend(static_cast<Token>(i), 1.0 - noise[i - first]);
  }
  return winner;
}

}  // namespace sluice

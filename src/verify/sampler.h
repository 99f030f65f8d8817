// From a row of logits to the next token: the sampling parameters' distribution, and the one token that its seed draws.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/spread.h"
#include "verify/constraint.h"
#include "wire/report.h"
#include "wire/sampling.h"

namespace sluice {

// Whether sampling parameters that a user gave make sense for a vocabulary of `n_vocab` tokens; the error names the
// parameter and its range.
Status check(const SamplingParams& params, int32_t n_vocab);

// log(sum of exp(logits)), natural; no logit is NaN or +inf. 0 when all are -inf.
double log_sum_exp(std::span<const float> logits);

struct Draw {
  Token token = kNoToken;
  float logprob =
      0.0f;  // natural log of the softmax of the raw logits (temperature 1, no filters, no penalties) at token
};

// Order of the parameters: constraint (what may not come has logit -inf), repetition penalty (each distinct token of
// the history once: a positive logit is divided by it, another multiplied), presence and frequency penalty (presence +
// n frequency is taken off the logit of a token that the history holds n > 0 times from position answer_from on), logit
// bias, temperature, top-k, top-p, min-p; each filter sees the renormalised survivors of the one before it. Top-k keeps
// exactly k tokens; top-p the fewest likeliest whose mass is at least p; equally likely tokens go in the order of their
// ids. Temperature 0 is the argmax, ties to the lowest id, and ignores the filters.
//
// Otherwise the token is drawn by Gumbel-max: argmax over the surviving ids of logit / T + gumbel(site, id), ties to
// the lowest id, at the site {seed, choice, position of the drawn token, Purpose::kSample}. A draw depends on nothing
// but the arguments, to the last bit, on every machine.
//
// Logits need not be finite: NaN counts as -inf, +inf as the largest float. When every logit is -inf, token 0 is
// certain, with logprob 0.
//
// Thread safety: none; a sampler keeps scratch memory and nothing else. With the threads of a `spread` it goes through
// the vocabulary in parts; what comes of it is the same, to the last bit, for any number of them.
class Sampler {
 public:
  void spread(Spread spread) { spread_ = std::move(spread); }

  // logits: [n_vocab] f32. history: the tokens of the path up to and including the row's own. position: of the drawn
  // token. REQUIRES: check(params, n_vocab); n_vocab > 0; tokens of the history within the vocabulary.
  Draw draw(const SamplingParams& params, std::span<const float> logits, std::span<const Token> history,
            int32_t position, Constraint* constraint = nullptr);

  // The distribution that draw() draws from, by token: [n_vocab], 0 for what cannot be drawn. Valid until the next
  // call.
  std::span<const double> probabilities(const SamplingParams& params, std::span<const float> logits,
                                        std::span<const Token> history, Constraint* constraint = nullptr);

  // What the target gives to each token, [n_vocab], the likeliest 1: with penalty, bias and temperature (greedy: 1), no
  // filter. Valid until the next call.
  std::span<const float> weights(const SamplingParams& params, std::span<const float> logits,
                                 std::span<const Token> history, Constraint* constraint = nullptr);

  // Draw::logprob of a token. REQUIRES: the last call was about these logits.
  float logprob(std::span<const float> logits, Token token) const;
  // The same of the n likeliest tokens, equally likely ones in the order of their ids; without those that have no
  // probability. REQUIRES: likewise.
  std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int32_t n) const;

 private:
  struct Contender {
    Token token = kNoToken;
    double score = 0.0;  // noise included
  };
  template <class Body>
  void in_parts(size_t n, Body body) const;
  void load(std::span<const float> logits);
  double normaliser();
  float maximum_of_all();
  void adjust(const SamplingParams& params, std::span<const Token> history, Constraint* constraint);
  void penalise_answer(const SamplingParams& params, std::span<const Token> history);
  float& logit(Token token);
  Token likeliest() const;
  void weigh(float temperature);
  void select(size_t count);
  void filter(const SamplingParams& params);
  bool likelier(Token a, Token b) const;
  Token gumbel_max(const SamplingParams& params, int32_t position) const;
  Contender best_between(const SamplingParams& params, int32_t position, Token start, size_t first, size_t last) const;

  Spread spread_;
  std::vector<float> logits_;                 // [n_vocab] after penalty and bias; none is NaN or +inf
  float best_ = 0.0f;                         // the largest of them; -inf when nothing can be drawn
  std::vector<float> weights_;                // [n_vocab] exp((logits_ - best_) / T): the likeliest token has 1
  std::vector<Token> survivors_;              // by likelihood, when a filter is on
  bool filtered_ = false;                     // whether only survivors_ may be drawn
  std::vector<float> block_maxima_, ranked_;  // scratch of select()
  std::vector<float> terms_;                  // scratch of normaliser()
  std::vector<double> probabilities_;         // [n_vocab] of probabilities()
  double normaliser_ = 0.0;  // log of the sum of the exponentials of the logits before penalty and bias
  std::vector<bool> seen_;   // scratch of adjust(): the tokens that the history holds
  std::vector<Token> said_;  // likewise: those of the answer, by id
};

}  // namespace sluice

// Candidates drawn from a source's distribution, as rule `reject` needs them.
#pragma once

#include <vector>

#include "base/chance.h"
#include "source/guess.h"
#include "wire/draws.h"
#include "wire/sampling.h"

namespace sluice {

// What a draft model draws from under the request's temperature and filters: of its kept logits, renormalised,
// likeliest first. Temperature 0: the likeliest alone.
std::vector<Candidate> draft_distribution(const TopLogits& top, const SamplingParams& sampling);

// q, bent (SAGUARO sampling): sigma_{F,C}(z)_t ~ C exp(z_t) for t in top_F(z), else exp(z_t). Order is kept.
std::vector<Candidate> bent(std::vector<Candidate> q, const Bend& by);

// Draws `count` tokens from q, bent by `by`: with replacement, or without, as long as there are any.
Draws draw_candidates(std::vector<Candidate> q, const Bend& by, const DrawSite& site, int32_t count, bool replacement,
                      const Choose& choose = choose_by_noise);

// What may follow a node of which the children were drawn, likeliest first: the distinct drawn ones in the order of
// drawing, behind them what else q, not bent, holds. Their probabilities say how likely the verification comes to each:
// a drawn token is accepted far more often than q says where q holds it unlikely.
std::vector<Candidate> ranked(const Draws& draws, const std::vector<Candidate>& q);

}  // namespace sluice

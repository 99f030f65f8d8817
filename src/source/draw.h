// Candidates drawn from a source's distribution, as rule `reject` needs them.
#pragma once

#include <vector>

#include "base/wire.h"
#include "source/guess.h"

namespace sluice {

// What a draft model draws from under the request's temperature and filters: of its kept logits, renormalised,
// likeliest first. Temperature 0: the likeliest alone.
std::vector<Candidate> draft_distribution(const TopLogits& top, const SamplingParams& sampling);

// SAGUARO sampling: sigma_{F,C}(z)_t ~ C exp(z_t) for t in top_F(z), else exp(z_t). Order is kept.
std::vector<Candidate> saguaro(std::vector<Candidate> q, const Saguaro& by);

// Draws until `distinct` different tokens have come, or q, bent by `by`, has no more: with replacement, or without.
Draws draw_candidates(std::vector<Candidate> q, const Saguaro& by, const SamplingParams& sampling, int32_t position,
                      int32_t distinct, bool replacement);

}  // namespace sluice

// Rule `reject`: the papers' speculative sampling. It keeps the target's distribution, not its bits.
#pragma once

#include <span>
#include <vector>

#include "base/chance.h"
#include "wire/draws.h"
#include "wire/sampling.h"

namespace sluice {

// The target's next token by recursive rejection (SpecInfer's multi-step speculative sampling; of a single draw it is
// speculative sampling, Leviathan et al., 2023): the draws are tried in their order; a draw y is accepted with
// probability min(1, p(y) / q(y)), else p becomes norm(max(p - q, 0)) and, without replacement, q loses y. When all
// have been rejected the token is drawn from what is left of p. Whatever q is, the token is distributed as p.
//
// p: what the target may draw, by token. draws: sampled from draws.q. The noise is that of `sampling` at `position`,
// the token's.
Token draw_by_rejection(std::span<const double> p, const Draws& draws, const SamplingParams& sampling, int32_t position,
                        const Choose& choose = choose_by_noise);

// What a single draw from draws.q would have come to by each of kBends, in their order.
std::vector<BendOdds> bend_odds(std::span<const double> p, const Draws& draws);

}  // namespace sluice

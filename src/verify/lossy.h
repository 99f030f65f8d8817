// Lossy verification (SpecPipe section 3.4, "Lossless and Lossy Acceleration"): fewer flushes for another text.
#pragma once

#include <optional>

#include "base/wire.h"
#include "verify/sampler.h"

namespace sluice {

// Which of a row's children goes on; none: the target's own draw decides.
//   kRelaxed: the one that the target holds likeliest, so that there is no flush as long as there are children.
//   kTopP: of the children within the fewest likeliest tokens of p that add up to accept_p, the one with the highest
//   probability by its source; none if there are none.
// p: the target's distribution, likeliest first. children.q: the children with their source's probabilities.
std::optional<Token> choose_child(const TargetDistribution& p, const Draws& children, const SamplingParams& sampling);

// The parameters whose distribution is meant: greedy decoding has one token in it, so there it is the plain softmax.
SamplingParams distribution_of(SamplingParams sampling);

}  // namespace sluice

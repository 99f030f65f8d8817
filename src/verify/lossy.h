// Lossy verification (SpecPipe section 3.4, "Lossless and Lossy Acceleration"): fewer flushes for another text.
#pragma once

#include <optional>
#include <span>

#include "wire/draws.h"
#include "wire/sampling.h"

namespace sluice {

// Which of a row's children goes on; none: the target's own draw decides.
//   kRelaxed: the one that the target holds likeliest, so that there is no flush as long as there are children.
//   kTopP: of the children within the fewest likeliest tokens that add up to accept_p of the target's mass, the one
//   with the highest probability by its source; none if there are none. Equals: the one that the target holds likelier.
// weights: [n_vocab], what the target gives to each token, no filter applied, in any unit. children.q: the children
// with their source's probabilities.
std::optional<Token> choose_child(std::span<const float> weights, const Draws& children,
                                  const SamplingParams& sampling);

}  // namespace sluice

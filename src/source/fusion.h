// One ranked level from the candidates of two sources.
#pragma once

#include <vector>

#include "base/wire.h"

namespace sluice {

// Candidates of both, duplicates merged, the likeliest first. A model's probabilities count in full; what the text
// itself says adds to them with the weight that it has earned.
std::vector<Candidate> fuse(const std::vector<Candidate>& model, const std::vector<Candidate>& text,
                            float text_weight = 0.1f);

}  // namespace sluice

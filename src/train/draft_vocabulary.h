// The tokens that a head may guess: the corpus' most frequent ones.
#pragma once

#include <span>
#include <vector>

#include "train/corpus.h"

namespace sluice {

// The `size` tokens that occur most often in the answers (ties: lower ids first; after those that occur, the lowest ids
// of the vocabulary), ascending; `kept` before all others.
std::vector<Token> choose_draft_vocabulary(const std::vector<Example>& examples, int32_t n_vocab, int32_t size,
                                           const std::vector<Token>& kept = {});

// The share of the answers' tokens that are in it. An empty vocabulary holds all.
double coverage(std::span<const Example> examples, const std::vector<Token>& vocabulary);

}  // namespace sluice

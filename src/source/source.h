// The seam behind which tokens are guessed: n-grams, draft models, heads.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "tree/token_tree.h"

namespace sluice {

// A source is a state machine of one sequence: it is told the committed tokens and proposes children for nodes of the
// tree that hangs from them. It reads no clock and never blocks; the same calls give the same answers. Thread safety:
// none.
class Source {
 public:
  virtual ~Source() = default;

  virtual std::string_view name() const = 0;

  // `tokens` have been committed, in this order, after all that was observed before. The prompt comes this way too.
  virtual void observe(std::span<const Token> tokens) = 0;

  // Forgets the committed tokens after the first `length`.
  // REQUIRES: 0 <= length <= the number of tokens observed.
  virtual void truncate(int32_t length) = 0;

  // Children of the node that is reached from the committed tokens by `tree_path` (empty: the root, which is the last
  // committed token): at most `max_children` distinct tokens, the likeliest first, their probabilities adding up to at
  // most 1. Empty when the source has nothing to say. Changes nothing that later answers depend on.
  virtual std::vector<Candidate> expand(std::span<const Token> tree_path, int32_t max_children) = 0;
};

}  // namespace sluice

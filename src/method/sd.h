#pragma once

#include "method/method.h"

namespace sluice {

// Speculative decoding (Leviathan et al., Chen et al., 2023), SD in the papers: the source drafts a chain of K tokens,
// then the target verifies it in one pass, then the source drafts again. One of the two is always idle.
class SpeculativeDecoding final : public Method {
 public:
  explicit SpeculativeDecoding(const MethodOptions& options) : length_(options.depth), p_min_(options.draft_p_min) {}
  Proposal propose(Speculation& speculation, const Idle& idle) override;

 private:
  int32_t length_;  // K
  double p_min_;    // the source goes on below paths at least so likely
};

}  // namespace sluice

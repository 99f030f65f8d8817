#pragma once

#include "method/method.h"

namespace sluice {

// Speculative Pipeline Decoding, SPD (sections 3.4 to 3.7): while the tokens in the pipeline advance by a stage, the
// speculation module guesses from the states at the step's beginning what follows the newest one, and the guess enters
// at the next step. With W > 1 the W likeliest branches by cumulative probability are kept, a level a step. A verdict
// that the tree doesn't hold flushes the pipeline, which fills again from the right token.
class SpeculativePipelineDecoding final : public Method {
 public:
  explicit SpeculativePipelineDecoding(const MethodOptions& options) : width_(options.width) {}
  Proposal propose(Speculation& speculation, const Idle& idle) override;

 private:
  void grow(Speculation& speculation) const;
  int32_t width_;  // W
};

}  // namespace sluice

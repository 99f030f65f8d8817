#pragma once

#include "method/method.h"

namespace sluice {

// Plain decoding on the pipeline (PP in the papers): the root enters as soon as it is known, then everything waits for
// it.
class Autoregressive final : public Method {
 public:
  Proposal propose(Speculation& speculation, const Idle& idle) override;
};

}  // namespace sluice

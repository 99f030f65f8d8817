#pragma once

#include "method/method.h"

namespace sluice {

// Plain decoding on the pipeline (PP in the papers): the root enters as soon as it is known, then everything waits for
// it.
class Autoregressive final : public Method {
 public:
  std::string_view name() const override { return "ar"; }
  bool speculates() const override { return false; }
  Proposal propose(Speculation& speculation, const Idle& idle) override;
};

}  // namespace sluice

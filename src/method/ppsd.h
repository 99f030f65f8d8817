#pragma once

#include "method/spd.h"

namespace sluice {

// PPSD (Li et al., 2025): SPD's schedule with an early exit as the source. The exit reads what the first stage has just
// computed, so its guess comes after the step instead of beside it, and the first stage waits for it.
class Ppsd final : public SpeculativePipelineDecoding {
 public:
  using SpeculativePipelineDecoding::SpeculativePipelineDecoding;
  std::string_view name() const override { return "ppsd"; }
  std::optional<HeadKind> head() const override { return HeadKind::kExit; }
};

}  // namespace sluice

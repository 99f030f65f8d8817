#pragma once

#include "method/method.h"

namespace sluice {

// Surge (ours): the source guesses as often as it can, each time for the likeliest nodes it has not seen; whenever the
// first stage is free, the likeliest waiting nodes of any depth enter, up to the row budget. So several levels may
// enter in a step and several tokens come out, and a branch that was once too unlikely can still be rescued before the
// last stage reaches it.
//
// It differs from SpecPipe's several levels a step (section 3.4) in who enters: there whole levels, here whatever is
// likely enough, so that the tree deepens where the source is sure and widens where it isn't.
class Surge final : public Method {
 public:
  explicit Surge(const MethodOptions& options) : rows_(options.width), draft_rows_(options.draft_rows) {}
  Proposal propose(Speculation& speculation, const Idle& idle) override;

 private:
  int32_t rows_;        // that enter in a step at most
  int32_t draft_rows_;  // nodes the source guesses for at a time; 0: as many as pay
};

}  // namespace sluice

#pragma once

#include "method/method.h"
#include "method/sd.h"
#include "method/specinfer.h"

namespace sluice {

// EAGLE-3 (Li et al., 2025) and P-EAGLE (Hui et al., 2026): a head on the target's own features drafts, the target
// verifies, one after the other. EAGLE-3 drafts token by token, a chain of K tokens or, with a budget of nodes, the
// dynamic tree of EAGLE-2: the likeliest nodes down to the depth. P-EAGLE drafts a chain of K tokens in one pass.
class Eagle final : public Method {
 public:
  Eagle(HeadKind kind, const MethodOptions& options);
  std::string_view name() const override { return sluice::name(kind_); }
  bool speculates() const override { return true; }
  std::optional<HeadKind> head() const override { return kind_; }
  bool takes_chains() const override { return schedule_->takes_chains(); }
  bool fills_pipeline() const override { return false; }
  int32_t draws() const override { return schedule_->draws(); }
  Proposal propose(Speculation& speculation, const Idle& idle) override {
    return schedule_->propose(speculation, idle);
  }

 private:
  HeadKind kind_;
  std::unique_ptr<Method> schedule_;
};

}  // namespace sluice

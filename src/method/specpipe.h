#pragma once

#include "method/method.h"

namespace sluice {

// SpecPipe, Algorithm 1 (sections 3.2 and 3.3): a tree of fixed width, one level of which enters the pipeline at every
// step, while a token source guesses the next level from the one that entered before.
//
// The target's verdicts re-root and prune the tree (TokenTree::advance); a token that the tree doesn't hold flushes the
// pipeline, and the tree grows anew from it.
class SpecPipe final : public Method {
 public:
  explicit SpecPipe(const MethodOptions& options) : width_(options.width) {}
  std::string_view name() const override { return "specpipe"; }
  bool speculates() const override { return true; }
  Proposal propose(Speculation& speculation, const Idle& idle) override;

 private:
  int32_t width_;
};

}  // namespace sluice

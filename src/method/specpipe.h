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
  explicit SpecPipe(const MethodOptions& options)
      : width_(options.width), levels_(options.levels), group_(options.group) {}
  Proposal propose(Speculation& speculation, const Idle& idle) override;

 private:
  int32_t waiting_levels(const Speculation& speculation) const;
  void cut_to_part(std::vector<NodeId>& level) const;
  void grow(Speculation& speculation, int32_t levels, const Idle& idle);

  int32_t width_;   // w
  int32_t levels_;  // that enter in a step: 1, or more as section 3.4 tried
  int32_t group_;   // a level enters in so many parts, a step each: section 3.4's groups of stages in long pipelines
};

}  // namespace sluice

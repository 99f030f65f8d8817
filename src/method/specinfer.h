#pragma once

#include "method/method.h"

namespace sluice {

// SpecInfer (Miao et al., 2023) as the SpecPipe paper's baseline has it (section 4): a static tree, each node of level
// i - 1 having the b_i children that the source ranks first, enters as one batch when the pipeline is empty and the
// tree complete. Drafting overlaps the pipeline: while a tree is verified, the source goes on below its leaves, so that
// a tree that was right to its end is followed by one that is ready.
//
// With a budget of nodes instead of branchings it is the best tree of that size: the nodes of highest cumulative
// probability, level by level down to the depth (as in EAGLE-2).
class SpecInfer final : public Method {
 public:
  explicit SpecInfer(const MethodOptions& options)
      : branching_(options.branching), nodes_(options.tree_nodes), depth_(options.depth) {}
  Proposal propose(Speculation& speculation, const Idle& idle) override;

 private:
  std::vector<NodeId> grow_static(TokenTree& tree, int32_t levels, int32_t last_position, std::vector<NodeId>& members);
  std::vector<NodeId> grow_best(TokenTree& tree, int32_t last_position, std::vector<NodeId>& members);
  int32_t children_at(int32_t depth) const;

  std::vector<int32_t> branching_;  // b_1, b_2, …
  int32_t nodes_;                   // 0: as branching_ says
  int32_t depth_;
};

}  // namespace sluice

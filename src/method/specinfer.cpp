#include <algorithm>

#include "method/likeliest.h"
#include "method/makers.h"
#include "method/policy.h"

namespace sluice {

namespace {

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

  Proposal propose(Speculation& speculation, const Idle& idle) override {
    TokenTree& tree = speculation.tree;
    const bool verifying = speculation.target.entered(tree.root().id);
    const int32_t levels = static_cast<int32_t>(branching_.size());
    std::vector<NodeId> members, undrafted;
    if (nodes_ > 0) {
      undrafted = grow_best(tree, speculation.last_position, members);
      if (verifying && undrafted.empty()) {  // the likeliest continuations, for the next tree
        const int32_t deepest = std::min(speculation.last_position, tree.root().position + 2 * depth_ + 1);
        for (const NodeId id : likeliest(
                 tree, [&](const TokenTree::Node& n) { return !n.drafted && n.position < deepest; },
                 static_cast<size_t>(nodes_), policy::kUnlikely, deepest - 1))
          undrafted.push_back(id);
      }
    } else {
      undrafted = grow_static(tree, verifying ? 2 * levels + 1 : levels, speculation.last_position, members);
    }
    Proposal proposal;
    for (const NodeId id : undrafted) proposal.expand.push_back({id});
    if (!verifying && undrafted.empty() && idle.first_stage) proposal.enter = members;
    return proposal;
  }

 private:
  // Down to `levels` below the root: returns the nodes whose children are missing, since the source has not spoken.
  std::vector<NodeId> grow_static(TokenTree& tree, int32_t levels, int32_t last_position,
                                  std::vector<NodeId>& members) {
    std::vector<NodeId> undrafted, level = {tree.root().id};
    for (int32_t depth = 0; !level.empty(); ++depth) {
      members.insert(members.end(), level.begin(), level.end());
      if (depth == levels || members.size() > policy::kPreparedNodes) break;
      std::vector<NodeId> next;
      for (const NodeId id : level) {
        if (tree.node(id).position >= last_position) continue;
        if (!tree.node(id).drafted) {
          undrafted.push_back(id);
          continue;
        }
        const auto candidates = tree.node(id).candidates;
        const size_t count = std::min(candidates.size(), static_cast<size_t>(children_at(depth)));
        for (size_t i = 0; i < count; ++i) {
          const auto known = tree.child(id, candidates[i].token);
          next.push_back(known ? *known : tree.append(id, candidates[i].token, candidates[i].probability));
        }
      }
      level = std::move(next);
    }
    return undrafted;
  }

  // The likeliest nodes as far as they are known; complete when all of them that may have children have been drafted.
  std::vector<NodeId> grow_best(TokenTree& tree, int32_t last_position, std::vector<NodeId>& members) {
    const int32_t deepest = std::min(last_position, tree.root().position + depth_);
    members = likeliest(
        tree, [&](const TokenTree::Node& n) { return n.position <= deepest; }, static_cast<size_t>(nodes_) + 1, -1e300,
        deepest);
    std::vector<NodeId> undrafted;
    for (const NodeId id : members)
      if (!tree.node(id).drafted && tree.node(id).position < deepest) undrafted.push_back(id);
    return undrafted;
  }

  // Of a node so deep below the root. Beyond the tree: a guess at the token that the verification adds to it, then the
  // next tree.
  int32_t children_at(int32_t depth) const {
    const int32_t levels = static_cast<int32_t>(branching_.size());
    const int32_t level = depth % (levels + 1);
    return level == levels ? 1 : branching_[static_cast<size_t>(level)];
  }

  std::vector<int32_t> branching_;  // b_1, b_2, …
  int32_t nodes_;                   // 0: as branching_ says
  int32_t depth_;
};

}  // namespace

std::unique_ptr<Method> make_specinfer(const MethodOptions& options) { return std::make_unique<SpecInfer>(options); }

}  // namespace sluice

#include <algorithm>

#include "method/level.h"
#include "method/makers.h"

namespace sluice {

namespace {

// Of the deepest level, below which nodes may pay: those of which the source has not spoken.
class Undrafted {
 public:
  Undrafted(const TokenTree& tree, const Floor& floor) : tree_(tree), lowest_(floor.at(tree, tree.deepest() + 1)) {}

  bool any() const { return std::any_of(tree_.frontier().begin(), tree_.frontier().end(), *this); }
  std::vector<Ask> asks() const {
    std::vector<Ask> asks;
    asks.reserve(tree_.frontier().size());
    for (const NodeId id : tree_.frontier())
      if ((*this)(id)) asks.push_back({id});
    return asks;
  }
  bool operator()(NodeId id) const {
    const auto& node = tree_.node(id);
    return !node.drafted && node.log_path > lowest_;
  }

 private:
  const TokenTree& tree_;
  double lowest_;
};

// SpecPipe, Algorithm 1 (sections 3.2 and 3.3): a tree of fixed width, one level of which enters the pipeline at every
// step, while a token source guesses the next level from the one that entered before.
//
// The target's verdicts re-root and prune the tree (TokenTree::advance); a token that the tree doesn't hold flushes the
// pipeline, and the tree grows anew from it.
class SpecPipe final : public Method {
 public:
  explicit SpecPipe(const MethodOptions& options)
      : width_(options.width), levels_(options.levels), group_(options.group) {}

  Proposal propose(Speculation& speculation, const Idle& idle) override {
    TokenTree& tree = speculation.tree;
    Proposal proposal;
    if (!idle.first_stage && idle.answers_at_once()) return proposal;
    if (idle.first_stage) {
      // The last level is chosen as late as can be, when the newest verdict is known.
      grow(speculation, levels_, idle);
      proposal.enter = first_waiting_levels(speculation, levels_);
      cut_to_part(proposal.enter);
      if (!proposal.enter.empty() && idle.answers_at_once()) return proposal;
    } else {
      grow(speculation, levels_ - 1, idle);
    }
    // The source guesses the next level from the one that enters now, or entered last, while the pipeline computes.
    const int32_t waiting = idle.first_stage ? 0 : waiting_levels(speculation);
    if (waiting < levels_ && tree.deepest() < speculation.last_position)
      proposal.expand = Undrafted(tree, idle.floor).asks();
    return proposal;
  }

 private:
  // Levels that have not entered, from the first of them to the deepest.
  int32_t waiting_levels(const Speculation& speculation) const {
    const int32_t below = speculation.tree.deepest() + 1;
    return below - first_waiting_level(speculation).value_or(below);
  }

  // With stages in groups, as many mini-batches as a group has stages hold a level together: the likeliest nodes go
  // first, and the next level begins when the last have entered.
  void cut_to_part(std::vector<NodeId>& level) const {
    const int32_t part = (width_ * levels_ + group_ - 1) / group_;
    level.resize(std::min(level.size(), static_cast<size_t>(part)));
  }

  // Until so many levels wait, or the source has not yet spoken of all nodes of the deepest.
  void grow(Speculation& speculation, int32_t levels, const Idle& idle) {
    TokenTree& tree = speculation.tree;
    for (int32_t waiting = waiting_levels(speculation); waiting < levels; ++waiting) {
      if (tree.deepest() >= speculation.last_position || Undrafted(tree, idle.floor).any()) return;
      const size_t before = tree.size();
      append_level(tree, static_cast<int32_t>(std::min(static_cast<size_t>(width_), idle.rows)), idle.floor);
      if (tree.size() == before) return;  // the source has nothing to say
    }
  }

  int32_t width_;   // w
  int32_t levels_;  // that enter in a step: 1, or more as section 3.4 tried
  int32_t group_;   // a level enters in so many parts, a step each: section 3.4's groups of stages in long pipelines
};

}  // namespace

std::unique_ptr<Method> make_specpipe(const MethodOptions& options) { return std::make_unique<SpecPipe>(options); }

}  // namespace sluice

#include "method/level.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace sluice {

std::vector<NodeId> frontier(const TokenTree& tree) {
  const int32_t deepest = tree.deepest();
  std::vector<NodeId> level;
  for (const auto& node : tree.nodes())
    if (node.position == deepest) level.push_back(node.id);
  return level;
}

void append_level(TokenTree& tree, int32_t width) {
  struct Child {
    double log_path;
    uint32_t order;  // of its parent, then by rank: among equals the first wins
    NodeId parent;
    Candidate candidate;
  };
  std::vector<Child> children;
  children.reserve(static_cast<size_t>(width) * TokenTree::kMaxCandidates / 4);
  for (const NodeId id : frontier(tree)) {
    const auto& node = tree.node(id);
    for (const Candidate& c : node.candidates)
      children.push_back(
          {node.log_path + std::log(std::max(c.probability, 1e-30f)), static_cast<uint32_t>(children.size()), id, c});
  }
  const auto better = [](const Child& a, const Child& b) {
    return a.log_path != b.log_path ? a.log_path > b.log_path : a.order < b.order;
  };
  const size_t count = std::min(children.size(), static_cast<size_t>(width));
  std::partial_sort(children.begin(), children.begin() + static_cast<ptrdiff_t>(count), children.end(), better);
  for (const Child& c : std::span(children).first(count))
    tree.append(c.parent, c.candidate.token, c.candidate.probability);
}

std::vector<NodeId> first_waiting_levels(const Speculation& speculation, int32_t count) {
  std::vector<NodeId> waiting;
  const TokenTree& tree = speculation.tree;
  for (const auto& node : tree.nodes())
    if (!speculation.target.entered(node.id)) waiting.push_back(node.id);
  const auto position = [&](NodeId id) { return tree.node(id).position; };
  // Levels are in the order of ids unless another method has grown the tree.
  std::stable_sort(waiting.begin(), waiting.end(), [&](NodeId a, NodeId b) { return position(a) < position(b); });
  const auto end = std::find_if(waiting.begin(), waiting.end(),
                                [&](NodeId id) { return position(id) >= position(waiting.front()) + count; });
  waiting.erase(end, waiting.end());
  return waiting;
}

}  // namespace sluice

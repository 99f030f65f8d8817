#include "method/level.h"

#include <algorithm>
#include <cmath>

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
    NodeId parent;
    Candidate candidate;
  };
  std::vector<Child> children;
  for (const NodeId id : frontier(tree)) {
    const auto& node = tree.node(id);
    for (const Candidate& c : node.candidates)
      children.push_back({node.log_path + std::log(std::max(c.probability, 1e-30f)), id, c});
  }
  const auto better = [](const Child& a, const Child& b) { return a.log_path > b.log_path; };
  std::stable_sort(children.begin(), children.end(), better);
  if (children.size() > static_cast<size_t>(width)) children.resize(static_cast<size_t>(width));
  for (const Child& c : children) tree.append(c.parent, c.candidate.token, c.candidate.probability);
}

std::vector<NodeId> first_waiting_level(const Speculation& speculation) {
  std::vector<NodeId> level;
  int32_t position = 0;
  for (const auto& node : speculation.tree.nodes()) {  // levels come in order
    if (speculation.target.entered(node.id)) continue;
    if (level.empty()) position = node.position;
    if (node.position == position) level.push_back(node.id);
  }
  return level;
}

}  // namespace sluice

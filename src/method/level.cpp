#include "method/level.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice {

void append_level(TokenTree& tree, int32_t width, const Floor& floor) {
  struct Child {
    double log_path;
    uint32_t order;  // of its parent, then by rank: among equals the first wins
    NodeId parent;
    Candidate candidate;
  };
  const auto better = [](const Child& a, const Child& b) {
    return a.log_path != b.log_path ? a.log_path > b.log_path : a.order < b.order;
  };
  // The best so far, as a heap with the least of them on top; what cannot get past that one is not looked at further.
  const auto count = static_cast<size_t>(width);
  std::vector<Child> children;
  children.reserve(count + 1);
  uint32_t order = 0;
  const double lowest = floor.at(tree, tree.deepest() + 1);
  for (const NodeId id : tree.frontier()) {
    const auto& node = tree.node(id);
    if (node.log_path <= lowest) continue;
    float least = 0;  // a little below what it takes
    const auto raise = [&] {
      if (children.size() == count)
        least = 0.999f * static_cast<float>(std::exp(children.front().log_path - node.log_path));
    };
    raise();
    for (const Candidate& c : node.candidates) {
      ++order;
      if (c.probability < least) continue;
      const double log_path = node.log_path + TokenTree::log_of(c.probability);
      if (log_path <= lowest) continue;
      children.push_back({log_path, order, node.id, c});
      std::push_heap(children.begin(), children.end(), better);
      if (children.size() <= count) continue;
      std::pop_heap(children.begin(), children.end(), better);
      children.pop_back();
      raise();
    }
  }
  std::sort_heap(children.begin(), children.end(), better);
  for (const Child& c : children) tree.append(c.parent, c.candidate.token, c.candidate.probability);
}

namespace {

// Calls `f` for each node that waits, the newest first. What has entered is in the tree, so it is known how many wait;
// and they are found soonest among the newest.
template <typename F>
void for_each_waiting(const Speculation& speculation, F f) {
  const auto nodes = speculation.tree.nodes();
  size_t left = nodes.size() - std::min(nodes.size(), speculation.target.n_entered());
  for (size_t i = nodes.size(); left > 0 && i-- > 0;) {
    if (speculation.target.entered(nodes[i].id)) continue;
    --left;
    f(nodes[i]);
  }
}

}  // namespace

std::optional<int32_t> first_waiting_level(const Speculation& speculation) {
  std::optional<int32_t> first;
  for_each_waiting(speculation, [&](const TokenTree::Node& node) {
    first = std::min(first.value_or(node.position), node.position);
  });
  return first;
}

std::vector<NodeId> first_waiting_levels(const Speculation& speculation, int32_t count) {
  const auto first = first_waiting_level(speculation);
  if (!first) return {};
  std::vector<NodeId> levels;
  levels.reserve(speculation.tree.size() - std::min(speculation.tree.size(), speculation.target.n_entered()));
  for_each_waiting(speculation, [&](const TokenTree::Node& node) {
    if (node.position < *first + count) levels.push_back(node.id);
  });
  std::reverse(levels.begin(), levels.end());
  // Levels are in the order of ids unless another method has grown the tree.
  const auto higher = [&](NodeId a, NodeId b) {
    return speculation.tree.node(a).position < speculation.tree.node(b).position;
  };
  if (count > 1) std::stable_sort(levels.begin(), levels.end(), higher);
  return levels;
}

}  // namespace sluice

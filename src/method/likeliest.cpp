#include "method/likeliest.h"

#include <algorithm>

namespace sluice {

namespace {

struct Place {
  double log_path;
  uint32_t order;  // among equals the first wins, so that parents come before children
  NodeId node;     // or, if there is none yet:
  NodeId parent;
  Candidate candidate;
};

bool likelier(const Place& a, const Place& b) {
  return a.log_path != b.log_path ? a.log_path > b.log_path : a.order < b.order;
}

// The best places so far, the worst of them in front.
class Best {
 public:
  Best(size_t count, const Floor& floor, const TokenTree& tree) : count_(count), floor_(floor), tree_(&tree) {
    heap_.reserve(std::min(count, tree.nodes().size()) + 1);
  }
  // What a place there must exceed.
  double bar(int32_t position) const {
    const double floor = floor_.at(*tree_, position);
    return heap_.size() < count_ ? floor : std::max(floor, heap_.front().log_path);
  }
  void add(double log_path, NodeId node, NodeId parent, Candidate candidate) {
    heap_.push_back({log_path, n_added_++, node, parent, candidate});
    std::push_heap(heap_.begin(), heap_.end(), likelier);
    if (heap_.size() <= count_) return;
    std::pop_heap(heap_.begin(), heap_.end(), likelier);
    heap_.pop_back();
  }
  std::vector<Place> take() {
    std::sort_heap(heap_.begin(), heap_.end(), likelier);
    return std::move(heap_);
  }

 private:
  size_t count_;
  Floor floor_;
  const TokenTree* tree_;
  uint32_t n_added_ = 0;
  std::vector<Place> heap_;
};

}  // namespace

std::vector<NodeId> likeliest(TokenTree& tree, const std::function<bool(const TokenTree::Node&)>& wanted, size_t count,
                              const Floor& floor, int32_t last_position) {
  if (count == 0) return {};
  Best best(count, floor, tree);
  for (const auto& node : tree.nodes())
    if (node.log_path > best.bar(node.position) && wanted(node)) best.add(node.log_path, node.id, {}, {});
  for (const auto& node : tree.nodes()) {
    if (node.position >= last_position) continue;
    const size_t n = node.candidates.size();
    const auto open = [&](size_t i) {
      while (i < n && (node.grown >> i & 1) != 0) ++i;
      return i;
    };
    double log_path = node.log_path + node.next_log;
    for (size_t i = open(0); log_path > best.bar(node.position + 1);) {  // they are ranked
      best.add(log_path, {}, node.id, node.candidates[i]);
      if ((i = open(i + 1)) == n) break;
      log_path = node.log_path + TokenTree::log_of(node.candidates[i].probability);
    }
  }
  const std::vector<Place> places = best.take();
  std::vector<NodeId> chosen;
  chosen.reserve(places.size());
  for (const Place& place : places)
    chosen.push_back(place.node.valid()
                         ? place.node
                         : tree.append(place.parent, place.candidate.token, place.candidate.probability));
  return chosen;
}

}  // namespace sluice

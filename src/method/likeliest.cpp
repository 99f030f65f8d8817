#include "method/likeliest.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace sluice {

std::vector<NodeId> likeliest(TokenTree& tree, const std::function<bool(const TokenTree::Node&)>& wanted, size_t count,
                              double floor, int32_t last_position) {
  struct Place {
    double log_path;
    NodeId node;  // or, if there is none yet:
    NodeId parent;
    Candidate candidate;
  };
  std::vector<Place> places;
  std::set<std::pair<NodeId, Token>> taken;
  for (const auto& node : tree.nodes()) {
    if (node.parent.valid()) taken.emplace(node.parent, node.token);
    if (node.log_path > floor && wanted(node)) places.push_back({node.log_path, node.id, {}, {}});
  }
  for (const auto& node : tree.nodes()) {
    if (node.position >= last_position) continue;
    for (const Candidate& c : node.candidates) {
      const double log_path = node.log_path + std::log(std::max(c.probability, 1e-30f));
      if (log_path <= floor) break;  // they are ranked
      if (!taken.contains({node.id, c.token})) places.push_back({log_path, {}, node.id, c});
    }
  }
  count = std::min(count, places.size());
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return a.log_path > b.log_path; });
  std::vector<NodeId> chosen;
  for (size_t i = 0; i < count; ++i)
    chosen.push_back(places[i].node.valid()
                         ? places[i].node
                         : tree.append(places[i].parent, places[i].candidate.token, places[i].candidate.probability));
  return chosen;
}

}  // namespace sluice

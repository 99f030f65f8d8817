#include "engine/children.h"

#include <set>
#include <utility>

namespace sluice {

Amendment tell_children(std::span<const Planned> plan, const Lane& target, Batch& batch) {
  std::set<std::pair<const Request*, NodeId>> parents;
  for (const Planned& planned : plan) {
    if (!planned.node.valid() || !is_lossy(planned.request->spec.sampling.rule)) continue;
    if (const NodeId parent = planned.request->speculation.tree.node(planned.node).parent; parent.valid())
      parents.emplace(planned.request, parent);
  }
  Amendment late;
  for (const auto& [request, parent] : parents) {
    const Residency& there = request->residency(kTarget);
    const Resident& resident = *there.find(parent);
    Draws children{.row = resident.row};
    const TokenTree& tree = request->speculation.tree;
    for (const NodeId child : tree.children(parent))
      if (there.entered(child)) children.q.push_back({tree.node(child).token, tree.node(child).probability});
    if (resident.batch == batch.id)
      batch.draws.push_back(std::move(children));
    else if (target.traffic().holds(resident.batch))
      late.late_draws.push_back({resident.batch, std::move(children)});
  }
  return late;
}

}  // namespace sluice

#include "engine/scheduler.h"

#include <algorithm>

namespace sluice {

namespace {

// Asks the method; a source that answers at once is asked as long as the method has questions.
std::vector<NodeId> propose(Request& request) {
  Speculation& speculation = request.speculation;
  for (;;) {
    Proposal proposal =
        request.method->propose(speculation, {.first_stage = true, .source = request.source != nullptr});
    if (proposal.expand.empty()) return std::move(proposal.enter);
    for (const NodeId node : proposal.expand)
      speculation.tree.set_candidates(
          node, request.source->expand(speculation.tree.path(node), request.spec.method_options.children));
    if (!proposal.enter.empty()) return std::move(proposal.enter);
  }
}

}  // namespace

std::vector<Planned> Scheduler::compose(std::span<Request* const> requests, size_t free_cells,
                                        size_t spare_cells) const {
  std::vector<Planned> rows;
  for (Request* request : requests) {
    if (request->prompt_rows_left() > 0) continue;
    for (const NodeId node : propose(*request))
      rows.push_back({request, node, request->speculation.tree.node(node).log_path});
  }
  // A child is never likelier than its parent, so the order by probability keeps parents first.
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Planned& a, const Planned& b) { return a.log_path > b.log_path; });
  // What is promised may still be taken by guesses that entered before the promise: then it must wait for them to die.
  const size_t budget = std::min(static_cast<size_t>(options_.row_budget), free_cells);
  size_t n = 0, spare = spare_cells;
  std::erase_if(rows, [&](const Planned& planned) {
    const bool speculated = planned.request->speculation.tree.root().id != planned.node;
    if (n == budget || (speculated && spare == 0)) return true;  // with a parent its children go too: they come later
    ++n;
    spare -= speculated;
    return false;
  });

  size_t prompt_budget = std::min(budget - rows.size(), static_cast<size_t>(options_.prompt_chunk));
  for (Request* request : requests) {
    const size_t chunk = std::min(prompt_budget, request->prompt_rows_left());
    rows.insert(rows.end(), chunk, Planned{.request = request});
    prompt_budget -= chunk;
  }
  return rows;
}

}  // namespace sluice

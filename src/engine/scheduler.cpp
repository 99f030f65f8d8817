#include "engine/scheduler.h"

#include <algorithm>
#include <set>

#include "engine/head_feed.h"

namespace sluice {

namespace {

// Who can take work for this request.
Idle idle_for(const Request& request, std::span<const Room> rooms) {
  Idle idle{.first_stage = rooms[0].idle && request.prompt_rows_left(kTarget) == 0,
            .stage_times = rooms[0].times,
            .seconds_per_token = request.seconds_per_token(),
            .n_stages = rooms[0].stages};
  for (size_t i = 0; i < request.sources.size(); ++i) {
    const auto draft = request.sources[i].draft;
    if (!draft || rooms[*draft + 1].idle) idle.sources |= 1u << i;
    if (!draft) {
      idle.instant |= 1u << i;
      continue;
    }
    if (idle.draft_times == nullptr) idle.draft_times = rooms[*draft + 1].times;
  }
  return idle;
}

// A draft model makes one token of a path in a pass. Where the text is as good as certain of the next one, that need
// not wait: it becomes a node at once, and the draft model passes both together.
// Whether it told anything.
bool foretell(Request& request) {
  constexpr float kCertain = 0.8f;
  Speculation& speculation = request.speculation;
  const SourceSlot* slot = request.sources.empty() ? nullptr : &request.sources.front();
  if (slot == nullptr || !slot->local || !slot->draft || !request.method->foretells()) return false;
  if (request.spec.sampling.rule == Rule::kReject) return false;  // what is drawn is the draft model's
  bool told = false;
  std::vector<NodeId> nodes;
  for (const auto& node : speculation.tree.nodes())
    if (!node.drafted && !node.foretold && node.position < speculation.last_position) nodes.push_back(node.id);
  for (const NodeId node : nodes) {
    const std::vector<Candidate> said[] = {
        {}, slot->local->expand(speculation.tree.path(node), request.spec.method_options.children)};
    auto fused = request.fusion.fuse(node, said);
    std::erase_if(fused, [](const Candidate& c) { return c.probability < kCertain; });
    told |= !fused.empty();
    speculation.tree.foretell(node, std::move(fused));
  }
  return told;
}

// Asks the method; a source that answers at once is asked as long as the method has questions and nothing to enter.
Proposal propose(Request& request, const Idle& idle) {
  Speculation& speculation = request.speculation;
  for (;;) {
    Proposal proposal = request.method->propose(speculation, idle);
    const size_t asked = std::erase_if(proposal.expand, [&](const Ask& ask) {
      const SourceSlot& slot = request.sources[ask.source];
      if (slot.draft) return false;
      request.method->drafted(
          speculation, ask.source, ask.node,
          slot.local->expand(speculation.tree.path(ask.node), request.spec.method_options.children));
      return true;
    });
    if (asked == 0 || !proposal.enter.empty()) return proposal;
  }
}

}  // namespace

std::vector<std::vector<Planned>> Scheduler::compose(std::span<Request* const> requests,
                                                     std::span<const Room> rooms) const {
  std::vector<std::vector<Planned>> plans(rooms.size());
  for (Request* request : requests) {
    Idle idle = idle_for(*request, rooms);
    idle.n_requests = requests.size();
    if (!idle.first_stage && idle.sources == 0) continue;
    const auto plan = [&](NodeId node) {
      return Planned{request, node, request->speculation.tree.node(node).log_path};
    };
    foretell(*request);
    Proposal proposal = propose(*request, idle);
    // What enters in one piece is foretold as far as it goes before the draft model is asked.
    while (!request->method->fills_pipeline() && proposal.enter.empty() && foretell(*request))
      proposal = propose(*request, idle);
    if (idle.first_stage)
      for (const NodeId node : proposal.enter) plans[0].push_back(plan(node));
    for (const Ask& ask : proposal.expand)
      if (idle.source(ask.source)) plans[*request->sources[ask.source].draft + 1].push_back(plan(ask.node));
  }
  if (rooms[0].idle) plans[0] = compose_target(std::move(plans[0]), requests, rooms[0]);
  for (size_t m = 1; m < rooms.size(); ++m)
    if (rooms[m].idle) plans[m] = compose_draft(plans[m], requests, ModelId(static_cast<int32_t>(m)), rooms[m]);
  return plans;
}

std::vector<Planned> Scheduler::compose_target(std::vector<Planned> rows, std::span<Request* const> requests,
                                               Room room) const {
  // A child is never likelier than its parent, so the order by probability keeps parents first.
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Planned& a, const Planned& b) { return a.log_path > b.log_path; });
  // What is promised may still be taken by guesses that entered before the promise: then it must wait for them to die.
  const size_t budget = std::min(static_cast<size_t>(options_.row_budget), room.free_cells);
  size_t n = 0, spare = room.spare_cells;
  std::erase_if(rows, [&](const Planned& planned) {
    const bool speculated = planned.request->speculation.tree.root().id != planned.node;
    if (n == budget || (speculated && spare == 0)) return true;  // with a parent its children go too: they come later
    ++n;
    spare -= speculated;
    return false;
  });

  size_t prompt_budget = std::min(budget - rows.size(), static_cast<size_t>(options_.prompt_chunk));
  for (Request* request : requests) {
    const size_t chunk = std::min(prompt_budget, request->prompt_rows_left(kTarget));
    rows.insert(rows.end(), chunk, Planned{.request = request});
    prompt_budget -= chunk;
  }
  return rows;
}

std::vector<Planned> Scheduler::compose_draft(const std::vector<Planned>& asked, std::span<Request* const> requests,
                                              ModelId model, Room room) const {
  constexpr size_t kWorthAPass = 16, kBacklog = 256;
  const size_t budget = std::min(static_cast<size_t>(options_.row_budget), room.free_cells);
  std::vector<Planned> rows;
  std::set<const Request*> asking, ready;  // ready: all that is committed is there or comes now
  for (const Planned& ask : asked) asking.insert(ask.request);
  size_t prompt_budget = std::min(budget, static_cast<size_t>(options_.prompt_chunk));
  for (Request* request : requests) {
    if (!request->source_of(model)) continue;
    const size_t left = request->prompt_rows_left(model);
    // A head takes what has come of the target's states, so that they need not be kept.
    const size_t there =
        room.head ? room.head->rows_at_hand(*request, request->residency(model).committed.size()) : left;
    if (!request->method->speculates() && (!room.head || there < kBacklog)) continue;
    const size_t chunk = std::min(prompt_budget, there);
    // A few committed tokens cost next to nothing beside a question, but a pass of their own without one.
    if (there < kWorthAPass && !asking.contains(request)) continue;
    rows.insert(rows.end(), chunk, Planned{.request = request});
    prompt_budget -= chunk;
    if (chunk == left && (!room.head || room.head->knows_committed(*request))) ready.insert(request);
  }
  size_t spare = room.spare_cells;
  std::set<std::pair<const Request*, NodeId>> planned;
  for (const Planned& ask : asked) {
    if (!ready.contains(ask.request)) continue;
    const TokenTree& tree = ask.request->speculation.tree;
    std::vector<NodeId> missing;  // the node, its parent, …
    for (NodeId node = ask.node;
         node.valid() && !ask.request->residency(model).entered(node) && !planned.contains({ask.request, node});
         node = tree.node(node).parent)
      missing.push_back(node);
    if (room.head) {
      if (missing.empty() || planned.contains({ask.request, tree.node(missing.back()).parent}) ||
          !room.head->can_guess(*ask.request, missing.back()))
        continue;
      missing = {missing.back()};
    }
    if (rows.size() + missing.size() > budget || missing.size() > spare + 1) break;
    for (size_t i = missing.size(); i-- > 0;) {
      planned.emplace(ask.request, missing[i]);
      rows.push_back({ask.request, missing[i], tree.node(missing[i]).log_path});
      spare -= std::min<size_t>(spare, tree.node(missing[i]).parent.valid());
    }
  }
  return rows;
}

}  // namespace sluice

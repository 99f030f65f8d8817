#include "engine/drafting.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "engine/policy.h"
#include "source/draw.h"

namespace sluice {

bool Asking::pays() {
  if (n_ < policy::kAskedAtFirst || saved_ >= seconds_ || passed_over_ >= policy::kAskedAgain) {
    passed_over_ = 0;
    return true;
  }
  ++passed_over_;
  return false;
}

void Asking::learn(double seconds, double saved) {
  const double weight = std::max(policy::kNewestAnswer, 1.0 / static_cast<double>(++n_));
  seconds_ += weight * (seconds - seconds_);
  saved_ += weight * (saved - saved_);
}

namespace {

// Who can take work for this request.
Idle idle_for(const Request& request, std::span<const Room> rooms) {
  Idle idle{.first_stage = rooms[0].idle && request.prompt_rows_left(kTarget) == 0,
            .stage_times = rooms[0].times,
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

// Its guesses come from sources that answer at once, and its method keeps no count of what enters.
bool fills_from_within(const Request& request) {
  return request.method.traits.fills_pipeline &&
         std::none_of(request.sources.begin(), request.sources.end(),
                      [](const SourceSlot& slot) { return slot.draft.has_value(); });
}

// For its head, which knows nothing before the target's first verdict; that comes of the root alone.
bool waits_in_vain(const Request& request) {
  return request.asks_head() && !request.last_verified.valid() && request.root_waits();
}

// A draft model makes one token of a path in a pass. Where the text is as good as certain of the next one, that need
// not wait: it becomes a node at once, and the draft model passes both together.
// Whether it told anything.
bool foretell(Request& request) {
  Speculation& speculation = request.speculation;
  const SourceSlot* slot = request.sources.empty() ? nullptr : &request.sources.front();
  if (slot == nullptr || !slot->local || !slot->draft || !request.method.traits.foretells) return false;
  if (request.spec.sampling.rule == Rule::kReject) return false;  // what is drawn is the draft model's
  bool told = false;
  std::vector<NodeId> nodes;
  for (const auto& node : speculation.tree.nodes())
    if (!node.drafted && !node.foretold && node.position < speculation.last_position) nodes.push_back(node.id);
  for (const NodeId node : nodes) {
    const std::vector<Candidate> said[] = {
        {}, slot->local->expand(speculation.tree.path(node), request.spec.method_options.children)};
    auto fused = request.permitted(node, request.fusion.fuse(node, said));
    std::erase_if(fused, [](const Candidate& c) { return c.probability < policy::kForetold; });
    told |= !fused.empty();
    speculation.tree.foretell(node, std::move(fused));
  }
  return told;
}

// Asks the method; a source that answers at once is asked as long as the method has questions and nothing to enter.
Proposal propose(Request& request, const Idle& idle) {
  Speculation& speculation = request.speculation;
  for (;;) {
    Proposal proposal = request.method.policy->propose(speculation, idle);
    const size_t asked = std::erase_if(proposal.expand, [&](const Ask& ask) {
      const SourceSlot& slot = request.sources[ask.source];
      if (slot.draft) return false;
      auto said = slot.local->expand(speculation.tree.path(ask.node), request.spec.method_options.children);
      request.method.policy->drafted(speculation, ask.source, ask.node, request.permitted(ask.node, std::move(said)));
      return true;
    });
    if (asked == 0 || !proposal.enter.empty()) return proposal;
  }
}

// What the method would do now. What enters in one piece is foretold as far as it goes before the draft model is asked.
Proposal propose_all(Request& request, const Idle& idle) {
  foretell(request);
  Proposal proposal = propose(request, idle);
  while (!request.method.traits.fills_pipeline && proposal.enter.empty() && foretell(request))
    proposal = propose(request, idle);
  return proposal;
}

}  // namespace

Proposals Drafting::ask(std::span<Request* const> requests, std::span<const Room> rooms, const Bar& bar) {
  Proposals proposals;
  proposals.rows.reserve(row_budget_);
  proposals.questions.resize(rooms.size());
  const bool answers_pay = asking_.pays();
  const auto share = static_cast<size_t>(over_share_ * static_cast<double>(row_budget_)) / requests.size();
  for (uint32_t turn = 0; turn < requests.size(); ++turn) {
    Request& request = *requests[turn];
    constexpr double kSure = -1e-6;  // a log: a root is above every floor
    const NodeId root = request.speculation.tree.root().id;
    const double floor = std::min(kSure, bar.floor);
    if (const auto& last = request.passed_over;
        !bar.first_is_free && last && last->root == root && last->worth <= floor)
      continue;
    Idle idle = idle_for(request, rooms);
    if (!idle.first_stage && idle.sources == 0) continue;
    idle.n_requests = requests.size();
    idle.rows = std::max<size_t>(1, share);
    const double doubt = std::log(request.trust());
    idle.floor = {floor, -doubt};
    idle.first_is_free = bar.first_is_free;
    const bool from_within = fills_from_within(request);
    // Where not even a guess pays that is sure to come, or asking takes longer than guesses save, nobody is asked who
    // would answer at once.
    const bool none_pays = bar.floor - doubt >= 0.0 && !bar.first_is_free;
    if (from_within && (none_pays || !answers_pay)) {
      if (request.root_waits() && idle.first_stage) proposals.rows.push_back({&request, root, turn, /*root=*/true});
      continue;
    }
    const bool proposes = from_within && idle.first_stage;
    proposals.asked = proposals.asked || proposes;
    const size_t rows_before = proposals.rows.size();
    ask(request, turn, idle, doubt, proposals);
    if (!proposes) continue;
    request.passed_over = {root, -std::numeric_limits<double>::infinity()};
    for (const Planned& row : std::span(proposals.rows).subspan(rows_before))
      request.passed_over->worth = std::max(request.passed_over->worth, row.worth);
  }
  return proposals;
}

void Drafting::ask(Request& request, uint32_t turn, const Idle& idle, double doubt, Proposals& proposals) const {
  const Speculation& speculation = request.speculation;
  const auto plan = [&](NodeId id) {
    const auto& node = speculation.tree.node(id);
    const int32_t guesses = node.position - speculation.tree.root().position;  // on its path, each to be right
    return Planned{&request, id, turn, guesses == 0, node.log_path + guesses * doubt};
  };
  try {
    const Proposal proposal = propose_all(request, idle);
    if (idle.first_stage) {
      for (const NodeId node : proposal.enter) proposals.rows.push_back(plan(node));
      if (proposal.enter.empty() && waits_in_vain(request)) proposals.rows.push_back(plan(speculation.tree.root().id));
    }
    const bool blocks = !proposal.as_pays && !speculation.target.entered(speculation.tree.root().id);
    for (const Ask& ask : proposal.expand)
      if (idle.source(ask.source))
        proposals.questions[*request.sources[ask.source].draft + 1].push_back(
            {plan(ask.node), blocks, proposal.as_pays});
  } catch (const std::exception& error) {
    std::erase_if(proposals.rows, [&](const Planned& row) { return row.request == &request; });
    for (auto& questions : proposals.questions)
      std::erase_if(questions, [&](const Question& question) { return question.row.request == &request; });
    proposals.broken.emplace_back(&request, error.what());
  }
}

void Drafting::chosen(const Proposals& proposals, std::span<const Planned> rows, double saved, double took) {
  for (const Planned& row : rows) row.request->passed_over.reset();
  if (!rows.empty()) {
    const double proposed = static_cast<double>(proposals.rows.size()) / static_cast<double>(row_budget_);
    over_share_ = std::clamp(over_share_ * policy::kProposed / std::max(proposed, 1.0), 1.0, policy::kMostOverShare);
  }
  if (proposals.asked) asking_.learn(took, saved);
}

std::optional<Amendment::LateDraws> Drafting::take(Request& request, size_t source, NodeId node,
                                                   const Drafted& answer) const {
  TokenTree& tree = request.speculation.tree;
  if (answer.depth > 0 && !request.method.traits.takes_chains) return {};
  for (int32_t below = 0; below < answer.depth; ++below) {
    const auto& candidates = tree.node(node).candidates;
    if (candidates.empty() || tree.node(node).position >= request.speculation.last_position) return {};
    const Candidate best = candidates.front();
    const auto known = tree.child(node, best.token);
    node = known ? *known : tree.append(node, best.token, best.probability);
  }
  if (answer.depth > 0 && tree.node(node).drafted) return {};
  const auto& local = request.sources[source].local;
  if (request.spec.sampling.rule == Rule::kReject && !local) return draw(request, source, node, answer.candidates);
  std::vector<Candidate> candidates = answer.candidates;
  if (local) {
    const std::vector<Candidate> said[] = {std::move(candidates),
                                           local->expand(tree.path(node), request.spec.method_options.children)};
    candidates = request.fusion.fuse(node, said);
  }
  request.method.policy->drafted(request.speculation, source, node, request.permitted(node, std::move(candidates)));
  return {};
}

// Rule `reject`: the children are drawn from q; behind them, what the source ranks next. (Candidates that were ranked,
// not drawn, count as a point mass: then the target's own draw decides whether it is one of them.)
//
// Whether a draw is used must not depend on what was drawn, or the answer's distribution is no longer the target's. So
// how many are drawn is known before; a node is drawn for once; the noise is the node's own, so that nothing that
// happened before can have depended on it; and what was drawn leaves before anything comes of it: now, if the node is
// on its way, else with the node's row. Which of the children enter has no part in it.
std::optional<Amendment::LateDraws> Drafting::draw(Request& request, size_t source, NodeId id,
                                                   std::vector<Candidate> q) const {
  Speculation& speculation = request.speculation;
  const auto& node = speculation.tree.node(id);
  const int32_t count = request.method.traits.draws;
  if (node.draws) return {};
  q = request.permitted(id, std::move(q));
  if (count == 0 || q.empty()) {
    request.method.policy->drafted(speculation, source, id, std::move(q));
    return {};
  }
  const SamplingParams& sampling = request.spec.sampling;
  const DrawSite site{.seed = sampling.seed,
                      .choice = sampling.choice,
                      .position = static_cast<uint32_t>(node.position) + 1,
                      .purpose = Purpose::kDraft,
                      .path = node.text};
  const auto draws = std::make_shared<Draws>(draw_candidates(q, request.method.policy->bend(speculation.tree, id), site,
                                                             count, request.spec.method_options.replacement, choose_));
  std::optional<Amendment::LateDraws> late;
  if (const Resident* resident = speculation.target.find(id)) {
    late = {resident->batch, *draws};
    late->draws.row = resident->row;
  }
  request.method.policy->drafted(speculation, source, id, ranked(*draws, q), draws);
  return late;
}

}  // namespace sluice

#include "engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/head_feed.h"
#include "engine/shares.h"

namespace sluice {

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

// A draft model makes one token of a path in a pass. Where the text is as good as certain of the next one, that need
// not wait: it becomes a node at once, and the draft model passes both together.
// Whether it told anything.
bool foretell(Request& request) {
  constexpr float kCertain = 0.8f;
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
    Proposal proposal = request.method.policy->propose(speculation, idle);
    const size_t asked = std::erase_if(proposal.expand, [&](const Ask& ask) {
      const SourceSlot& slot = request.sources[ask.source];
      if (slot.draft) return false;
      request.method.policy->drafted(
          speculation, ask.source, ask.node,
          slot.local->expand(speculation.tree.path(ask.node), request.spec.method_options.children));
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

// Of a batch's rows at least such a part is for prompts as long as there are any.
constexpr size_t kPromptPart = 4;
// A prompt enters at least so many rows at a time: attention takes them together.
constexpr size_t kPromptQuantum = 16;
// What is so much less likely (a log) than the last guess that found room in a batch will find none in the next.
constexpr double kLikelyToChange = -0.1;
// A request is asked for up to so many times its share of a batch, since others may want less.
constexpr size_t kOverShare = 2;

bool is_root(const Planned& row) { return row.request->speculation.tree.root().id == row.node; }

size_t prompt_rows(std::span<Request* const> requests) {
  size_t rows = 0;
  for (const Request* request : requests) rows += request->prompt_rows_left(kTarget);
  return rows;
}

// Its guesses come from sources that answer at once, and its method keeps no count of what enters.
bool fills_from_within(const Request& request) {
  return request.method.traits.fills_pipeline &&
         std::none_of(request.sources.begin(), request.sources.end(),
                      [](const SourceSlot& slot) { return slot.draft.has_value(); });
}

// Its root has still to enter.
bool root_waits(const Request* request) {
  return request->prompt_rows_left(kTarget) == 0 &&
         !request->speculation.target.entered(request->speculation.tree.root().id);
}

// Rows of a batch that enter whatever they cost, if there is room.
size_t rows_anyway(std::span<Request* const> requests, size_t prompt_chunk) {
  const auto roots = std::count_if(requests.begin(), requests.end(), root_waits);
  return static_cast<size_t>(roots) + std::min(prompt_rows(requests), prompt_chunk);
}

// A child is never likelier than its parent and has a larger id, so parents come first.
constexpr auto kLikelier = [](const Planned& a, const Planned& b) {
  if (a.worth != b.worth) return a.worth > b.worth;
  return a.turn != b.turn ? a.turn < b.turn : a.node < b.node;
};

// Of rows, the best first, each request keeps as many as its share of `budget` is. The first that must do with less
// than it wants, if any.
Request* cut_to_shares(std::vector<Planned>& rows, size_t budget, std::span<Request* const> requests) {
  if (rows.size() <= budget) return nullptr;
  std::vector<size_t> wants(requests.size());
  for (const Planned& row : rows) ++wants[row.turn];
  std::vector<size_t> left = shares(wants, budget, 1);
  const auto first_short = std::mismatch(wants.begin(), wants.end(), left.begin()).first;
  std::erase_if(rows, [&](const Planned& row) {
    size_t& mine = left[row.turn];
    if (mine == 0) return true;
    --mine;
    return false;
  });
  return first_short == wants.end() ? nullptr : requests[static_cast<size_t>(first_short - wants.begin())];
}

// The rows of each request side by side.
void put_side_by_side(std::vector<Planned>& rows) {
  const auto by_turn = [](const Planned& a, const Planned& b) { return a.turn < b.turn; };
  if (!std::is_sorted(rows.begin(), rows.end(), by_turn)) std::stable_sort(rows.begin(), rows.end(), by_turn);
}

}  // namespace

size_t Scheduler::budget(const Room& room) const {
  return std::min(static_cast<size_t>(options_.row_budget), room.free_cells);
}

// By arrival, beginning with the one whose turn it is.
std::vector<Request*> Scheduler::in_turn(std::span<Request* const> requests) const {
  std::vector<Request*> turns(requests.begin(), requests.end());
  const auto first =
      std::find_if(turns.begin(), turns.end(), [&](const Request* request) { return request->id >= first_; });
  std::rotate(turns.begin(), first == turns.end() ? turns.begin() : first, turns.end());
  return turns;
}

Plans Scheduler::compose(std::span<Request* const> by_arrival, std::span<const Room> rooms) {
  Plans plans{.models = std::vector<std::vector<Planned>>(rooms.size()), .broken = {}};
  std::vector<std::vector<Asked>> asked(rooms.size());
  std::vector<Planned> rows;
  const std::vector<Request*> requests = in_turn(by_arrival);
  const Price price(requests, rooms[0]);
  const double floor = std::max(bar_, price.floor(rows_anyway(requests, static_cast<size_t>(options_.prompt_chunk)),
                                                  static_cast<size_t>(options_.row_budget)));
  const bool answers_pay = asking_.pays();
  for (uint32_t turn = 0; turn < requests.size(); ++turn) {
    Request* const request = requests[turn];
    Idle idle = idle_for(*request, rooms);
    if (!idle.first_stage && idle.sources == 0) continue;
    idle.n_requests = requests.size();
    idle.rows = std::max<size_t>(1, kOverShare * static_cast<size_t>(options_.row_budget) / requests.size());
    constexpr double kSure = -1e-6;  // a log: a root is above every floor
    const double doubt = std::log(request->trust());
    idle.floor = std::min(kSure, floor - doubt);
    const Speculation& speculation = request->speculation;
    // Where not even a guess pays that is sure to come, or asking takes longer than guesses save, nobody is asked who
    // would answer at once.
    const bool from_within = fills_from_within(*request);
    if (from_within && (floor - doubt >= 0.0 || !answers_pay)) {
      if (root_waits(request) && idle.first_stage) rows.push_back({request, speculation.tree.root().id, turn});
      continue;
    }
    const NodeId root = speculation.tree.root().id;
    if (const auto& last = request->passed_over; from_within && last && last->root == root && last->worth <= floor)
      continue;
    const auto plan = [&](NodeId id) {
      const auto& node = speculation.tree.node(id);
      const int32_t guesses = node.position - speculation.tree.root().position;  // on its path, each to be right
      return Planned{request, id, turn, node.log_path + guesses * doubt};
    };
    const bool proposes = from_within && idle.first_stage;
    plans.asked = plans.asked || proposes;
    if (proposes) request->passed_over = {root, kNoBar};
    try {
      const Proposal proposal = propose_all(*request, idle);
      if (idle.first_stage)
        for (const NodeId node : proposal.enter) {
          rows.push_back(plan(node));
          if (proposes) request->passed_over->worth = std::max(request->passed_over->worth, rows.back().worth);
        }
      const bool blocks = !proposal.as_pays && !speculation.target.entered(speculation.tree.root().id);
      for (const Ask& ask : proposal.expand)
        if (idle.source(ask.source))
          asked[*request->sources[ask.source].draft + 1].push_back({plan(ask.node), blocks, proposal.as_pays});
    } catch (const std::exception& error) {
      std::erase_if(rows, [request](const Planned& row) { return row.request == request; });
      plans.broken.emplace_back(request, error.what());
    }
  }
  for (const auto& [broken, why] : plans.broken)
    for (auto& asks : asked) std::erase_if(asks, [b = broken](const Asked& ask) { return ask.row.request == b; });
  if (!plans.broken.empty()) return plans;  // those that are left are asked again
  if (rooms[0].idle) plans.models[0] = compose_target(rows, requests, rooms[0], price, plans.saved);
  for (const Planned& row : plans.models[0]) row.request->passed_over.reset();
  for (size_t m = 1; m < rooms.size(); ++m)
    if (rooms[m].idle)
      plans.models[m] = compose_draft(std::move(asked[m]), requests, ModelId(static_cast<int32_t>(m)), rooms[m], price);
  return plans;
}

void Scheduler::took(const Plans& plans, double seconds) {
  if (plans.asked) asking_.learn(seconds, plans.saved);
}

std::vector<Planned> Scheduler::roots_alone(std::span<Request* const> by_arrival, const Room& room) {
  const std::vector<Request*> requests = in_turn(by_arrival);
  std::vector<Planned> roots;
  for (uint32_t turn = 0; turn < requests.size(); ++turn) {
    Request* const request = requests[turn];
    if (root_waits(request)) roots.push_back({request, request->speculation.tree.root().id, turn});
  }
  double saved = 0.0;
  return compose_target(roots, requests, room, Price(requests, room), saved);
}

std::vector<Planned> Scheduler::compose_target(std::span<const Planned> proposed, std::span<Request* const> requests,
                                               const Room& room, const Price& price, double& saved) {
  const size_t budget = this->budget(room);
  const size_t prompts = std::min(prompt_rows(requests), static_cast<size_t>(options_.prompt_chunk));
  const size_t for_prompts = std::min({prompts, std::max<size_t>(1, budget / kPromptPart), budget});
  const Request* first_short = nullptr;
  std::vector<Planned> rows, guesses;
  std::vector<bool> left_out(requests.size());
  for (const Planned& row : proposed) {
    if (!is_root(row)) {
      if (!left_out[row.turn]) guesses.push_back(row);
    } else if (rows.size() < budget - for_prompts) {
      rows.push_back(row);
    } else {
      left_out[row.turn] = true;
      if (first_short == nullptr) first_short = row.request;
    }
  }

  std::sort(guesses.begin(), guesses.end(), kLikelier);
  std::vector<double> chances;
  chances.reserve(guesses.size());
  for (const Planned& guess : guesses) chances.push_back(std::exp(guess.worth));
  const size_t anyway = rows.size() + std::min(prompts, budget - rows.size());
  const size_t enter = price.worthwhile(anyway, chances);
  bar_ = 0 < enter && enter < guesses.size() ? guesses[enter - 1].worth + kLikelyToChange : kNoBar;
  guesses.resize(enter);
  saved = price.saved(anyway, std::span(chances).first(guesses.size()));
  // What is promised may still be taken by guesses that entered before the promise: then it must wait for them to die.
  const Request* shortest =
      cut_to_shares(guesses, std::min(budget - for_prompts - rows.size(), room.spare_cells), requests);
  if (first_short == nullptr) first_short = shortest;
  rows.insert(rows.end(), guesses.begin(), guesses.end());

  std::vector<size_t> wants;
  for (const Request* request : requests) wants.push_back(request->prompt_rows_left(kTarget));
  const auto chunks = shares(wants, std::min(prompts, budget - rows.size()), kPromptQuantum);
  for (size_t i = 0; i < requests.size(); ++i) {
    rows.insert(rows.end(), chunks[i], Planned{.request = requests[i], .turn = static_cast<uint32_t>(i)});
    if (first_short == nullptr && chunks[i] < std::min(wants[i], kPromptQuantum)) first_short = requests[i];
  }
  // Whoever lacked something is served first next time; else everybody in turn.
  if (first_short != nullptr)
    first_ = first_short->id;
  else if (!rows.empty())
    first_ = RequestId(requests.front()->id.value + 1);
  put_side_by_side(rows);
  return rows;
}

std::vector<Planned> Scheduler::compose_draft(std::vector<Asked> asked, std::span<Request* const> requests,
                                              ModelId model, const Room& room, const Price& price) {
  constexpr size_t kWorthAPass = 16, kBacklog = 256;
  const size_t budget = this->budget(room);
  std::vector<Planned> rows;
  std::set<const Request*> asking, ready;  // ready: all that is committed is there or comes now
  for (const Asked& ask : asked) asking.insert(ask.row.request);
  std::vector<size_t> wants;
  for (const Request* request : requests) {
    size_t want = 0;
    if (request->source_of(model)) {
      // A head takes what has come of the target's states, so that they need not be kept.
      want = room.head ? room.head->rows_at_hand(*request, request->residency(model).committed.size())
                       : request->prompt_rows_left(model);
      if (!request->method.traits.speculates && (!room.head || want < kBacklog)) want = 0;
      // A few committed tokens cost next to nothing beside a question, but a pass of their own without one.
      if (want < kWorthAPass && !asking.contains(request)) want = 0;
    }
    wants.push_back(want);
  }
  const auto chunks = shares(wants, std::min(budget, static_cast<size_t>(options_.prompt_chunk)), kPromptQuantum);
  for (size_t i = 0; i < requests.size(); ++i) {
    rows.insert(rows.end(), chunks[i], Planned{.request = requests[i], .turn = static_cast<uint32_t>(i)});
    const bool serves = requests[i]->method.traits.speculates && requests[i]->source_of(model);
    if (serves && chunks[i] == requests[i]->prompt_rows_left(model) &&
        (!room.head || room.head->knows_committed(*requests[i])))
      ready.insert(requests[i]);
  }

  std::erase_if(asked, [&](const Asked& ask) { return !ready.contains(ask.row.request); });
  std::stable_sort(asked.begin(), asked.end(), [](const Asked& a, const Asked& b) {
    return a.blocks != b.blocks ? a.blocks : a.row.worth > b.row.worth;
  });
  keep_what_pays(asked, rows.size(), room, price.seconds_per_token());
  const auto nodes = with_ancestors(asked, requests.size(), model, room, budget - rows.size());
  rows.insert(rows.end(), nodes.begin(), nodes.end());
  put_side_by_side(rows);
  return rows;
}

// Leaves out questions that may wait and whose answers are not worth their rows.
void Scheduler::keep_what_pays(std::vector<Asked>& asked, size_t rows_anyway, const Room& room,
                               double seconds_per_token) {
  std::vector<double> gains;
  for (const Asked& ask : asked)
    if (ask.as_pays)
      gains.push_back(std::exp(ask.row.worth));
    else
      ++rows_anyway;
  size_t left = room.times->best_addition(static_cast<int32_t>(rows_anyway), gains, seconds_per_token);
  std::erase_if(asked, [&left](const Asked& ask) {
    if (!ask.as_pays) return false;
    if (left == 0) return true;
    --left;
    return false;
  });
}

// The nodes asked for, with those of their ancestors that the model doesn't know, as far as rows and cells go and
// nobody takes more than its share.
std::vector<Planned> Scheduler::with_ancestors(std::span<const Asked> asked, size_t n_requests, ModelId model,
                                               const Room& room, size_t budget) {
  std::vector<size_t> wants(n_requests);
  for (const Asked& ask : asked) ++wants[ask.row.turn];
  const std::vector<size_t> share = shares(wants, budget, 1);
  std::vector<size_t> taken(n_requests);
  size_t spare = room.spare_cells;
  std::vector<Planned> rows;
  std::set<std::pair<const Request*, NodeId>> planned;
  for (const Asked& ask : asked) {
    Request* const request = ask.row.request;
    const TokenTree& tree = request->speculation.tree;
    std::vector<NodeId> missing;  // the node, its parent, …
    for (NodeId node = ask.row.node;
         node.valid() && !request->residency(model).entered(node) && !planned.contains({request, node});
         node = tree.node(node).parent)
      missing.push_back(node);
    if (room.head) {
      if (missing.empty() || planned.contains({request, tree.node(missing.back()).parent}) ||
          !room.head->can_guess(*request, missing.back()))
        continue;
      missing = {missing.back()};
    }
    // Where there is no room for all of them the oldest go first.
    if (const size_t most = std::min(budget, spare + 1); rows.empty() && missing.size() > most)
      missing.erase(missing.begin(), missing.end() - static_cast<ptrdiff_t>(most));
    size_t& mine = taken[ask.row.turn];
    // The first question of a request may bring as many ancestors as it takes.
    if (missing.empty()) continue;
    const bool within_share = mine == 0 || mine + missing.size() <= share[ask.row.turn];
    if (!within_share || rows.size() + missing.size() > budget || missing.size() > spare + 1) continue;
    mine += missing.size();
    for (size_t i = missing.size(); i-- > 0;) {
      planned.emplace(request, missing[i]);
      rows.push_back({request, missing[i], ask.row.turn});
      spare -= std::min<size_t>(spare, tree.node(missing[i]).parent.valid());
    }
  }
  return rows;
}

}  // namespace sluice

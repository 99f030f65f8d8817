#include "engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
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

// What the method would do now. What enters in one piece is foretold as far as it goes before the draft model is asked.
Proposal propose_all(Request& request, const Idle& idle) {
  foretell(request);
  Proposal proposal = propose(request, idle);
  while (!request.method->fills_pipeline() && proposal.enter.empty() && foretell(request))
    proposal = propose(request, idle);
  return proposal;
}

// Of a batch's rows at least such a part is for prompts as long as there are any.
constexpr size_t kPromptPart = 4;
// A prompt enters at least so many rows at a time: attention takes them together.
constexpr size_t kPromptQuantum = 16;
// A request is asked for up to so many times its share of a batch, since others may want less.
constexpr size_t kOverShare = 2;

bool fill_the_pipeline(std::span<Request* const> requests) {
  return std::any_of(requests.begin(), requests.end(),
                     [](const Request* request) { return request->method->fills_pipeline(); });
}

// What a row saves must exceed its price by so much: both are estimates, and of many the best look better than they
// are.
constexpr double kMargin = 1.1;

// The time between tokens of all requests together: what a row must save that is right for sure. Requests that have not
// said enough yet count as the others do. As long as nobody has, they are taken to decode plainly, in passes that cost
// no less than any that was seen; but a tree or chain that waits for its verdict is tried as it is.
double seconds_per_token(std::span<Request* const> requests, const Room& room) {
  double rate = 0.0;
  size_t known = 0, answering = 0;
  for (const Request* request : requests) {
    answering += request->prompt_rows_left(kTarget) == 0;
    if (const auto seconds = request->seconds_per_token(); seconds && *seconds > 0.0) rate += 1.0 / *seconds, ++known;
  }
  if (known == 0) {
    constexpr double kLong = 1.0;  // more than any pass takes
    if (answering <= 1 && !fill_the_pipeline(requests)) return kLong;
    const auto at_once = static_cast<int32_t>(std::max<size_t>(1, answering));
    const double pass = room.times->seconds(std::max(at_once, room.times->narrowest()));
    return pass * static_cast<double>(room.stages) / at_once;
  }
  return static_cast<double>(known) / (rate * static_cast<double>(std::max(known, answering)));
}

// What a pass costs all who wait for it, in passes of a stage: with nothing beside it a batch passes every stage while
// the others idle, unless there are methods that fill them.
double passes(std::span<Request* const> requests, const Room& room) {
  if (fill_the_pipeline(requests)) return 1.0;
  return static_cast<double>(room.stages) / static_cast<double>(std::min(room.stages, room.under_way + 1));
}

// Rows that a batch may have by guesses: what is wider than anything that was seen is tried step by step.
size_t widest_try(const PassTimes& times) {
  constexpr int32_t kStep = 8;
  return static_cast<size_t>(times.widest() + std::max(kStep, times.widest() / 2));
}

bool is_root(const Planned& row) { return row.request->speculation.tree.root().id == row.node; }

size_t prompt_rows(std::span<Request* const> requests) {
  size_t rows = 0;
  for (const Request* request : requests) rows += request->prompt_rows_left(kTarget);
  return rows;
}

// The log of the least probability with which a row of the target can pay beside those that enter anyway.
double worthwhile(std::span<Request* const> requests, const Room& room, const Scheduler::Options& options,
                  double seconds_per_token) {
  const size_t prompts = std::min(prompt_rows(requests), static_cast<size_t>(options.prompt_chunk));
  const auto waits = [](const Request* request) {
    return request->prompt_rows_left(kTarget) == 0 &&
           !request->speculation.target.entered(request->speculation.tree.root().id);
  };
  const auto roots = std::count_if(requests.begin(), requests.end(), waits);
  const double price =
      room.times->least_price(static_cast<int32_t>(prompts) + static_cast<int32_t>(roots), options.row_budget);
  return std::log(kMargin * price * passes(requests, room) / seconds_per_token);  // -inf for a price of 0
}

bool likelier(const Planned& a, const Planned& b) { return a.worth > b.worth; }

// Of rows, the best first, each request keeps as many as its share of `budget` is. The first that must do with less
// than it wants, if any.
Request* cut_to_shares(std::vector<Planned>& rows, size_t budget) {
  if (rows.size() <= budget) return nullptr;
  std::vector<Request*> requests;  // in the order in which they come
  std::map<Request*, size_t> number;
  std::vector<size_t> wants;
  for (const Planned& row : rows) {
    const auto [at, fresh] = number.try_emplace(row.request, requests.size());
    if (fresh) requests.push_back(row.request), wants.push_back(0);
    ++wants[at->second];
  }
  std::vector<size_t> left = shares(wants, budget, 1);
  Request* first_short = nullptr;
  for (size_t i = 0; i < wants.size() && first_short == nullptr; ++i)
    if (left[i] < wants[i]) first_short = requests[i];
  std::erase_if(rows, [&](const Planned& row) {
    size_t& mine = left[number.at(row.request)];
    if (mine == 0) return true;
    --mine;
    return false;
  });
  return first_short;
}

// The rows of each request side by side, in the order in which the requests come.
std::vector<Planned> side_by_side(std::span<const Planned> rows) {
  if (std::all_of(rows.begin(), rows.end(), [&](const Planned& row) { return row.request == rows[0].request; }))
    return {rows.begin(), rows.end()};
  std::map<const Request*, size_t> number;
  std::vector<std::vector<Planned>> groups;
  for (const Planned& row : rows) {
    const auto [at, fresh] = number.try_emplace(row.request, groups.size());
    if (fresh) groups.emplace_back();
    groups[at->second].push_back(row);
  }
  std::vector<Planned> grouped;
  grouped.reserve(rows.size());
  for (const auto& group : groups) grouped.insert(grouped.end(), group.begin(), group.end());
  return grouped;
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
  const double seconds = seconds_per_token(requests, rooms[0]);
  const double floor = worthwhile(requests, rooms[0], options_, seconds);
  for (Request* request : requests) {
    Idle idle = idle_for(*request, rooms);
    if (!idle.first_stage && idle.sources == 0) continue;
    idle.n_requests = requests.size();
    idle.rows = std::max<size_t>(1, kOverShare * static_cast<size_t>(options_.row_budget) / requests.size());
    constexpr double kSure = -1e-6;  // a log: a root is above every floor
    idle.floor = std::min(kSure, floor - std::log(request->trust()));
    const Speculation& speculation = request->speculation;
    const auto plan = [&, doubt = std::log(request->trust())](NodeId id) {
      const auto& node = speculation.tree.node(id);
      const int32_t guesses = node.position - speculation.tree.root().position;  // on its path, each to be right
      return Planned{request, id, node.log_path, node.log_path + guesses * doubt};
    };
    try {
      const Proposal proposal = propose_all(*request, idle);
      if (idle.first_stage)
        for (const NodeId node : proposal.enter) rows.push_back(plan(node));
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
  if (rooms[0].idle) plans.models[0] = compose_target(rows, requests, rooms[0], seconds);
  for (size_t m = 1; m < rooms.size(); ++m)
    if (rooms[m].idle)
      plans.models[m] =
          compose_draft(std::move(asked[m]), requests, ModelId(static_cast<int32_t>(m)), rooms[m], seconds);
  return plans;
}

std::vector<Planned> Scheduler::roots_alone(std::span<Request* const> by_arrival, const Room& room) {
  const std::vector<Request*> requests = in_turn(by_arrival);
  std::vector<Planned> roots;
  for (Request* request : requests) {
    const NodeId root = request->speculation.tree.root().id;
    if (request->prompt_rows_left(kTarget) == 0 && !request->speculation.target.entered(root))
      roots.push_back({request, root});
  }
  return compose_target(roots, requests, room, 1.0);
}

std::vector<Planned> Scheduler::compose_target(std::span<const Planned> proposed, std::span<Request* const> requests,
                                               const Room& room, double seconds_per_token) {
  const size_t budget = this->budget(room);
  const size_t prompts = std::min(prompt_rows(requests), static_cast<size_t>(options_.prompt_chunk));
  const size_t for_prompts = std::min({prompts, std::max<size_t>(1, budget / kPromptPart), budget});
  const Request* first_short = nullptr;
  std::vector<Planned> rows, guesses;
  std::set<const Request*> left_out;
  for (const Planned& row : proposed) {
    if (!is_root(row)) {
      if (!left_out.contains(row.request)) guesses.push_back(row);
    } else if (rows.size() < budget - for_prompts) {
      rows.push_back(row);
    } else {
      left_out.insert(row.request);
      if (first_short == nullptr) first_short = row.request;
    }
  }

  // What the rows cost that enter anyway must be known before it can be said what more of them cost.
  if (!room.knows_times && !rows.empty() && fill_the_pipeline(requests)) guesses.clear();
  // A child is never likelier than its parent, so the order by probability keeps parents first.
  std::stable_sort(guesses.begin(), guesses.end(), likelier);
  std::vector<double> gains;
  for (const Planned& guess : guesses) gains.push_back(std::exp(guess.worth));
  const size_t anyway = rows.size() + std::min(prompts, budget - rows.size());
  guesses.resize(room.times->best_addition(static_cast<int32_t>(anyway), gains,
                                           seconds_per_token / (kMargin * passes(requests, room))));
  const size_t widest =
      room.knows_times ? std::max(anyway, widest_try(*room.times)) : std::numeric_limits<size_t>::max();
  guesses.resize(std::min(guesses.size(), widest - anyway));
  // What is promised may still be taken by guesses that entered before the promise: then it must wait for them to die.
  const Request* shortest = cut_to_shares(guesses, std::min(budget - for_prompts - rows.size(), room.spare_cells));
  if (first_short == nullptr) first_short = shortest;
  rows.insert(rows.end(), guesses.begin(), guesses.end());

  std::vector<size_t> wants;
  for (const Request* request : requests) wants.push_back(request->prompt_rows_left(kTarget));
  const auto chunks = shares(wants, std::min(prompts, budget - rows.size()), kPromptQuantum);
  for (size_t i = 0; i < requests.size(); ++i) {
    rows.insert(rows.end(), chunks[i], Planned{.request = requests[i]});
    if (first_short == nullptr && chunks[i] < std::min(wants[i], kPromptQuantum)) first_short = requests[i];
  }
  // Whoever lacked something is served first next time; else everybody in turn.
  if (first_short != nullptr)
    first_ = first_short->id;
  else if (!rows.empty())
    first_ = RequestId(requests.front()->id.value + 1);
  return side_by_side(rows);
}

std::vector<Planned> Scheduler::compose_draft(std::vector<Asked> asked, std::span<Request* const> requests,
                                              ModelId model, const Room& room, double seconds_per_token) {
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
      if (!request->method->speculates() && (!room.head || want < kBacklog)) want = 0;
      // A few committed tokens cost next to nothing beside a question, but a pass of their own without one.
      if (want < kWorthAPass && !asking.contains(request)) want = 0;
    }
    wants.push_back(want);
  }
  const auto chunks = shares(wants, std::min(budget, static_cast<size_t>(options_.prompt_chunk)), kPromptQuantum);
  for (size_t i = 0; i < requests.size(); ++i) {
    rows.insert(rows.end(), chunks[i], Planned{.request = requests[i]});
    const bool serves = requests[i]->method->speculates() && requests[i]->source_of(model);
    if (serves && chunks[i] == requests[i]->prompt_rows_left(model) &&
        (!room.head || room.head->knows_committed(*requests[i])))
      ready.insert(requests[i]);
  }

  std::erase_if(asked, [&](const Asked& ask) { return !ready.contains(ask.row.request); });
  std::stable_sort(asked.begin(), asked.end(), [](const Asked& a, const Asked& b) {
    return a.blocks != b.blocks ? a.blocks : likelier(a.row, b.row);
  });
  keep_what_pays(asked, rows.size(), room, seconds_per_token);
  for (const Planned& row : with_ancestors(asked, model, room, budget - rows.size())) rows.push_back(row);
  return side_by_side(rows);
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
std::vector<Planned> Scheduler::with_ancestors(std::span<const Asked> asked, ModelId model, const Room& room,
                                               size_t budget) {
  std::map<const Request*, size_t> number;
  std::vector<size_t> wants;
  for (const Asked& ask : asked) {
    const auto [at, fresh] = number.try_emplace(ask.row.request, wants.size());
    if (fresh) wants.push_back(0);
    ++wants[at->second];
  }
  const std::vector<size_t> share = shares(wants, budget, 1);
  std::vector<size_t> taken(share.size());
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
    size_t& mine = taken[number.at(request)];
    // The first question of a request may bring as many ancestors as it takes.
    if (missing.empty()) continue;
    const bool within_share = mine == 0 || mine + missing.size() <= share[number.at(request)];
    if (!within_share || rows.size() + missing.size() > budget || missing.size() > spare + 1) continue;
    mine += missing.size();
    for (size_t i = missing.size(); i-- > 0;) {
      planned.emplace(request, missing[i]);
      rows.push_back({request, missing[i], tree.node(missing[i]).log_path});
      spare -= std::min<size_t>(spare, tree.node(missing[i]).parent.valid());
    }
  }
  return rows;
}

}  // namespace sluice

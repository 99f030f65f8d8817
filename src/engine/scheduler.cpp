#include "engine/scheduler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "engine/head_feed.h"
#include "engine/policy.h"
#include "engine/prompt_chunk.h"

namespace sluice {

namespace {

// A child is never likelier than its parent and has a larger id, so parents come first.
constexpr auto kLikelier = [](const Planned& a, const Planned& b) {
  if (a.worth != b.worth) return a.worth > b.worth;
  return a.turn != b.turn ? a.turn < b.turn : a.node < b.node;
};

// Deals `budget` out to those who want `wants[i]` each: round by round in their order, a quantum a turn, until all is
// dealt or nobody wants more. So nobody lacks more than a quantum of what another has, unless he wants less.
std::vector<size_t> shares(std::span<const size_t> wants, size_t budget, size_t quantum) {
  std::vector<size_t> given(wants.size());
  for (bool dealt = true; dealt && budget > 0;) {
    dealt = false;
    for (size_t i = 0; i < wants.size(); ++i) {
      const size_t turn = std::min({quantum, wants[i] - given[i], budget});
      given[i] += turn;
      budget -= turn;
      dealt = dealt || turn > 0;
    }
  }
  return given;
}

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

// The rows of each of so many requests side by side, in the order in which they were.
void put_side_by_side(std::vector<Planned>& rows, size_t n_requests) {
  if (n_requests == 1) return;
  std::vector<size_t> place(n_requests + 1);
  for (const Planned& row : rows) ++place[row.turn + 1];
  std::partial_sum(place.begin(), place.end(), place.begin());
  std::vector<Planned> ordered(rows.size());
  for (const Planned& row : rows) ordered[place[row.turn]++] = row;
  rows = std::move(ordered);
}

}  // namespace

size_t Scheduler::budget(const Room& room) const {
  return std::min(static_cast<size_t>(options_.row_budget), room.free_cells);
}

// How many rows of prompts enter the target together. Beside who answers no more than usual, or than he may wait for.
size_t Scheduler::prompt_rows_at_once(std::span<Request* const> requests, const Room& target) const {
  const auto usual = static_cast<size_t>(options_.prompt_chunk);
  size_t left = 0, rows = 0;  // rows: of all prompts of which some is left, so that the chunk stays the same
  size_t who_answer = 0;
  for (const Request* request : requests) {
    const size_t of_prompt = request->prompt_rows_left(kTarget);
    if (of_prompt == 0) ++who_answer;
    left += of_prompt;
    if (of_prompt > 0) rows += request->tokens.size() - static_cast<size_t>(request->stats.reused_tokens);
  }
  if (left > 0 && who_answer > 0 && options_.longest_gap > 0)
    return std::min(left, prompt_rows_within(options_.longest_gap, who_answer, target.stages, *target.prompt_times,
                                             static_cast<size_t>(options_.row_budget)));
  if (left == 0 || options_.longest_chunk == 0 || target.stages == 1) return std::min(left, usual);
  const auto most = static_cast<size_t>(who_answer > 0 ? options_.prompt_chunk : options_.longest_chunk);
  return std::min(left, prompt_chunk(rows, target.stages, *target.prompt_times, usual, most));
}

// By arrival, beginning with the one whose turn it is.
std::vector<Request*> Scheduler::in_turn(std::span<Request* const> requests) const {
  std::vector<Request*> turns(requests.begin(), requests.end());
  const auto first =
      std::find_if(turns.begin(), turns.end(), [&](const Request* request) { return request->id >= first_; });
  std::rotate(turns.begin(), first == turns.end() ? turns.begin() : first, turns.end());
  return turns;
}

Bar Scheduler::bar(std::span<Request* const> requests, const Room& target, const Price& price) const {
  const auto roots = std::count_if(requests.begin(), requests.end(), [](const Request* r) { return r->root_waits(); });
  const size_t anyway = static_cast<size_t>(roots) + prompt_rows_at_once(requests, target);
  const double floor = price.floor(anyway, static_cast<size_t>(options_.row_budget));
  return {.floor = std::max(bar_, floor), .first_is_free = anyway == 0};
}

Plans Scheduler::compose(const Proposals& proposals, std::span<Request* const> requests, std::span<const Room> rooms,
                         const Price& price) {
  Plans plans{.models = std::vector<std::vector<Planned>>(rooms.size())};
  if (rooms[0].idle) plans.models[0] = compose_target(proposals.rows, requests, rooms[0], price, plans.saved);
  for (size_t m = 1; m < rooms.size(); ++m)
    if (rooms[m].idle)
      plans.models[m] =
          compose_draft(proposals.questions[m], requests, ModelId(static_cast<int32_t>(m)), rooms[m], price);
  return plans;
}

std::vector<Planned> Scheduler::roots_alone(std::span<Request* const> requests, const Room& room, const Price& price) {
  std::vector<Planned> roots;
  for (uint32_t turn = 0; turn < requests.size(); ++turn) {
    Request* const request = requests[turn];
    if (request->root_waits()) roots.push_back({request, request->speculation.tree.root().id, turn, /*root=*/true});
  }
  double saved = 0.0;
  return compose_target(roots, requests, room, price, saved);
}

std::vector<Planned> Scheduler::compose_target(std::span<const Planned> proposed, std::span<Request* const> requests,
                                               const Room& room, const Price& price, double& saved) {
  const size_t budget = this->budget(room);
  const size_t prompts = prompt_rows_at_once(requests, room);
  const size_t for_prompts = std::min({prompts, std::max<size_t>(1, budget / policy::kPromptPart), budget});
  const Request* first_short = nullptr;
  std::vector<Planned> rows, guesses;
  rows.reserve(budget);
  guesses.reserve(proposed.size());
  std::vector<bool> left_out(requests.size());
  for (const Planned& row : proposed) {
    if (!row.root) {
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
  const bool some_left = 0 < enter && enter < guesses.size();
  bar_ = some_left ? guesses[enter - 1].worth + policy::kLikelyToChange : bar_ + policy::kMoreRoom;
  guesses.resize(enter);
  saved = price.saved(anyway, std::span(chances).first(guesses.size()));
  // What is promised may still be taken by guesses that entered before the promise: then it must wait for them to die.
  const Request* shortest =
      cut_to_shares(guesses, std::min(budget - for_prompts - rows.size(), room.spare_cells), requests);
  if (first_short == nullptr) first_short = shortest;
  rows.insert(rows.end(), guesses.begin(), guesses.end());

  std::vector<size_t> wants;
  for (const Request* request : requests) wants.push_back(request->prompt_rows_left(kTarget));
  const auto chunks = shares(wants, std::min(prompts, budget - rows.size()), policy::kPromptQuantum);
  for (size_t i = 0; i < requests.size(); ++i) {
    rows.insert(rows.end(), chunks[i], Planned{.request = requests[i], .turn = static_cast<uint32_t>(i)});
    if (first_short == nullptr && chunks[i] < std::min(wants[i], policy::kPromptQuantum)) first_short = requests[i];
  }
  // Whoever lacked something is served first next time; else everybody in turn.
  if (first_short != nullptr)
    first_ = first_short->id;
  else if (!rows.empty())
    first_ = RequestId(requests.front()->id.value + 1);
  put_side_by_side(rows, requests.size());
  return rows;
}

std::vector<Planned> Scheduler::compose_draft(std::vector<Question> asked, std::span<Request* const> requests,
                                              ModelId model, const Room& room, const Price& price) {
  const size_t budget = this->budget(room);
  std::vector<Planned> rows;
  std::set<const Request*> asking, ready;  // ready: all that is committed is there or comes now
  for (const Question& ask : asked) asking.insert(ask.row.request);
  std::vector<size_t> wants;
  for (const Request* request : requests) {
    size_t want = 0;
    if (request->source_of(model)) {
      // A head takes what has come of the target's states, so that they need not be kept.
      want = room.head ? room.head->rows_at_hand(*request, request->residency(model).committed().size())
                       : request->prompt_rows_left(model);
      if (!request->method.traits.speculates && (!room.head || want < policy::kBacklog)) want = 0;
      // A few committed tokens cost next to nothing beside a question, but a pass of their own without one.
      if (want < policy::kWorthAPass && !asking.contains(request)) want = 0;
    }
    wants.push_back(want);
  }
  const auto chunks =
      shares(wants, std::min(budget, static_cast<size_t>(options_.prompt_chunk)), policy::kPromptQuantum);
  for (size_t i = 0; i < requests.size(); ++i) {
    rows.insert(rows.end(), chunks[i], Planned{.request = requests[i], .turn = static_cast<uint32_t>(i)});
    const bool serves = requests[i]->method.traits.speculates && requests[i]->source_of(model);
    if (serves && chunks[i] == requests[i]->prompt_rows_left(model) &&
        (!room.head || room.head->knows_committed(*requests[i])))
      ready.insert(requests[i]);
  }

  std::erase_if(asked, [&](const Question& ask) { return !ready.contains(ask.row.request); });
  std::stable_sort(asked.begin(), asked.end(), [](const Question& a, const Question& b) {
    return a.blocks != b.blocks ? a.blocks : a.row.worth > b.row.worth;
  });
  keep_what_pays(asked, rows.size(), room, price.seconds_per_token(), std::exp(bar_));
  if (room.shares && asked.empty() && rows.size() < policy::kWorthAPass) rows.clear();
  const auto nodes = with_ancestors(asked, requests.size(), model, room, budget - rows.size());
  rows.insert(rows.end(), nodes.begin(), nodes.end());
  put_side_by_side(rows, requests.size());
  return rows;
}

// Leaves out questions that may wait and whose answers are not worth their rows. Where the target waits for the pass,
// an answer is worth no more than a guess below it saves beside the least worth that finds room, and all of them no
// less than the pass.
void Scheduler::keep_what_pays(std::vector<Question>& asked, size_t rows_anyway, const Room& room,
                               double seconds_per_token, double least_worth) {
  std::vector<double> gains;
  for (const Question& ask : asked)
    if (!ask.as_pays)
      ++rows_anyway;
    else
      gains.push_back(std::max(0.0, std::exp(ask.row.worth) - (room.shares ? least_worth : 0.0)));
  size_t left = room.times->best_addition(static_cast<int32_t>(rows_anyway), gains, seconds_per_token);
  if (room.shares) {
    const double saved =
        seconds_per_token * std::accumulate(gains.begin(), gains.begin() + static_cast<ptrdiff_t>(left), 0.0);
    if (saved < policy::kMargin * room.times->seconds(static_cast<int32_t>(rows_anyway + left))) left = 0;
  }
  std::erase_if(asked, [&left](const Question& ask) {
    if (!ask.as_pays) return false;
    if (left == 0) return true;
    --left;
    return false;
  });
}

// The nodes asked for, with those of their ancestors that the model doesn't know, as far as rows and cells go and
// nobody takes more than its share.
std::vector<Planned> Scheduler::with_ancestors(std::span<const Question> asked, size_t n_requests, ModelId model,
                                               const Room& room, size_t budget) {
  std::vector<size_t> wants(n_requests);
  for (const Question& ask : asked) ++wants[ask.row.turn];
  const std::vector<size_t> share = shares(wants, budget, 1);
  std::vector<size_t> taken(n_requests);
  size_t spare = room.spare_cells;
  std::vector<Planned> rows;
  std::set<std::pair<const Request*, NodeId>> planned;
  for (const Question& ask : asked) {
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

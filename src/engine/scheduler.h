// Which rows of what all requests propose enter the next batches.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "engine/drafting.h"
#include "engine/policy.h"
#include "engine/price.h"
#include "engine/request.h"
#include "engine/room.h"
#include "wire/batch.h"

namespace sluice {

// What enters the idle models; by model, the target first.
struct Plans {
  std::vector<std::vector<Planned>> models;
  double saved = 0.0;  // seconds, by the guesses that enter the target
};

// Three rules hold for every model:
//   - A row enters if it can be expected to save more time than it adds to the batch that all requests share (the
//     price of a row). What somebody waits for enters whatever it costs: prompt rows, roots, the first row of a batch.
//   - When rows run out, no request takes what another could use: each has its share, in turns.
//   - The rows of a request lie side by side, so that attention reads what they have in common once.
class Scheduler {
 public:
  struct Options {
    int32_t row_budget = kMostRows;               // rows in a batch
    int32_t prompt_chunk = policy::kPromptChunk;  // of them at most so many prompt rows
    // Over several stages as many as have them through soonest, while nobody answers up to so many; 0: as above.
    int32_t longest_chunk = 0;
    // While somebody answers only as many as leave him so many seconds from token to token by plain decoding, as far as
    // can be foretold, and then up to `row_budget`; 0: as above.
    double longest_gap = 0;
  };
  explicit Scheduler(Options options) : options_(options) {}

  // By arrival, beginning with the one whose turn it is: the order in which requests are asked and served.
  std::vector<Request*> in_turn(std::span<Request* const> by_arrival) const;

  // What a guess must be worth to find room in the next batch. price: of these requests, as below.
  Bar bar(std::span<Request* const> requests, const Room& target, const Price& price) const;

  // What of the proposals enters each idle model now; requests are in turn, rooms by model.
  //
  // The target: roots, then the likeliest nodes of all requests that are worth their rows, beside a share of prompt
  // rows. A draft model: prompt rows, then the nodes to expand with those of their ancestors that it doesn't know,
  // first those whose requests have nothing else under way; a head: as far as it has the states that they take, and one
  // generation a batch.
  // No more rows than free cells, and of speculated nodes no more than spare ones.
  Plans compose(const Proposals& proposals, std::span<Request* const> requests, std::span<const Room> rooms,
                const Price& price);

  // The roots that have not entered, as many as there is room for: so that nobody waits for ever.
  std::vector<Planned> roots_alone(std::span<Request* const> requests, const Room& room, const Price& price);

 private:
  std::vector<Planned> compose_target(std::span<const Planned> rows, std::span<Request* const> requests,
                                      const Room& room, const Price& price, double& saved);
  std::vector<Planned> compose_draft(std::vector<Question> asked, std::span<Request* const> requests, ModelId model,
                                     const Room& room, const Price& price);
  static void keep_what_pays(std::vector<Question>& asked, size_t rows_anyway, const Room& room,
                             double seconds_per_token, double least_worth);
  static std::vector<Planned> with_ancestors(std::span<const Question> asked, size_t n_requests, ModelId model,
                                             const Room& room, size_t budget);
  size_t budget(const Room& room) const;
  size_t prompt_rows_at_once(std::span<Request* const> requests, const Room& target) const;

  Options options_;
  RequestId first_;  // whose turn it is to be served first
  // Worth of guesses that are not even looked for, since of late some found no room that were likelier.
  double bar_ = -std::numeric_limits<double>::infinity();
};

}  // namespace sluice

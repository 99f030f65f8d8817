// Composes the next batches from what the methods of all requests propose.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/price.h"
#include "engine/request.h"
#include "engine/room.h"
#include "wire/batch.h"

namespace sluice {

// A row of a batch and whose it is.
struct Planned {
  Request* request = nullptr;
  NodeId node;         // none: the next prompt row
  uint32_t turn = 0;   // its request's, among those that run
  double worth = 0.0;  // log of the probability that the row is of use, its source's word taken for what it has shown
};

// What enters the idle models; by model, the target first.
struct Plans {
  std::vector<std::vector<Planned>> models;
  std::vector<std::pair<Request*, std::string>> broken;  // requests whose method or source failed, and how
  bool asked = false;                                    // sources that answer at once
  double saved = 0.0;                                    // seconds, by the guesses that enter the target
};

// Three rules hold for every model:
//   - A row enters if it can be expected to save more time than it adds to the batch that all requests share (the
//     price of a row). What somebody waits for enters whatever it costs: prompt rows, roots, the first row of a batch.
//   - When rows run out, no request takes what another could use: each has its share, in turns.
//   - The rows of a request lie side by side, so that attention reads what they have in common once.
class Scheduler {
 public:
  struct Options {
    int32_t row_budget = 256;    // rows in a batch
    int32_t prompt_chunk = 128;  // of them at most so many prompt rows
  };
  explicit Scheduler(Options options) : options_(options) {}

  // What enters each idle model now; rooms are by model, the target first. Asks each method for its proposal, so trees
  // may grow, and lets sources that answer at once do so.
  //
  // The target: roots, then the likeliest nodes of all requests that are worth their rows, beside a share of prompt
  // rows. A draft model: prompt rows, then the nodes to expand with those of their ancestors that it doesn't know,
  // first those whose requests have nothing else under way; a head: as far as it has the states that they take, and one
  // generation a batch.
  // No more rows than free cells, and of speculated nodes no more than spare ones.
  Plans compose(std::span<Request* const> requests, std::span<const Room> rooms);

  // What it took to compose plans for which sources were asked. (On a simulated clock nothing.)
  void took(const Plans& plans, double seconds);

  // The roots that have not entered, as many as there is room for: so that nobody waits for ever.
  std::vector<Planned> roots_alone(std::span<Request* const> requests, const Room& room);

 private:
  struct Asked {
    Planned row;
    bool blocks = false;   // its request has nothing under way
    bool as_pays = false;  // to be left out where its row isn't worth it
  };
  std::vector<Request*> in_turn(std::span<Request* const> requests) const;
  std::vector<Planned> compose_target(std::span<const Planned> rows, std::span<Request* const> requests,
                                      const Room& room, const Price& price, double& saved);
  std::vector<Planned> compose_draft(std::vector<Asked> asked, std::span<Request* const> requests, ModelId model,
                                     const Room& room, const Price& price);
  static void keep_what_pays(std::vector<Asked>& asked, size_t rows_anyway, const Room& room, double seconds_per_token);
  static std::vector<Planned> with_ancestors(std::span<const Asked> asked, size_t n_requests, ModelId model,
                                             const Room& room, size_t budget);
  size_t budget(const Room& room) const;

  Options options_;
  RequestId first_;  // whose turn it is to be served first
  Asking asking_;
  // Worth of guesses that are not even looked for, since in the batch before some found no room that were likelier.
  static constexpr double kNoBar = -std::numeric_limits<double>::infinity();
  double bar_ = kNoBar;
};

}  // namespace sluice

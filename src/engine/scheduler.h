// Composes the next batches from what the methods of all requests propose.
#pragma once

#include <span>
#include <vector>

#include "base/wire.h"
#include "engine/request.h"

namespace sluice {

// A row of a batch and whose it is.
struct Planned {
  Request* request = nullptr;
  NodeId node;  // none: the next prompt row
  double log_path = 0.0;
};

class HeadFeed;

// What a model can take.
struct Room {
  bool idle = false;  // its first stage has nothing to do
  size_t free_cells = 0;
  size_t spare_cells = 0;  // free ones that are not promised to committed tokens and roots
  size_t stages = 1;
  const PassTimes* times = nullptr;
  const HeadFeed* head = nullptr;  // if it is a head
};

class Scheduler {
 public:
  struct Options {
    int32_t row_budget = 256;    // rows in a batch
    int32_t prompt_chunk = 128;  // of them at most so many prompt rows
  };
  explicit Scheduler(Options options) : options_(options) {}

  // What enters each idle model now; rooms and plans are by model, the target first. Asks each method for its proposal,
  // so trees may grow, and lets sources that answer at once do so.
  //
  // The target: the likeliest nodes of all requests, parents before children, then prompt rows in the order of arrival.
  // A draft model: prompt rows, then the nodes to expand with those of their ancestors that it doesn't know; a head: as
  // far as it has the states that they take, and one generation a batch.
  // No more rows than free cells, and of speculated nodes no more than spare ones.
  std::vector<std::vector<Planned>> compose(std::span<Request* const> requests, std::span<const Room> rooms) const;

 private:
  std::vector<Planned> compose_target(std::vector<Planned> rows, std::span<Request* const> requests, Room room) const;
  std::vector<Planned> compose_draft(const std::vector<Planned>& asked, std::span<Request* const> requests,
                                     ModelId model, Room room) const;

  Options options_;
};

}  // namespace sluice

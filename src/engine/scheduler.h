// Composes the next batch from what the methods of all requests propose.
#pragma once

#include <span>

#include "base/wire.h"
#include "engine/request.h"

namespace sluice {

// A row of the batch and whose it is.
struct Planned {
  Request* request = nullptr;
  NodeId node;  // none: the next prompt row
  double log_path = 0.0;
};

class Scheduler {
 public:
  struct Options {
    int32_t row_budget = 256;    // rows in a batch
    int32_t prompt_chunk = 128;  // of them at most so many prompt rows
  };
  explicit Scheduler(Options options) : options_(options) {}

  // What enters the first stage now: the likeliest nodes of all requests, parents before children, then prompt rows in
  // the order of arrival. No more rows than `free_cells`, and of speculated nodes no more than `spare_cells`: the other
  // free ones are promised to roots and prompt rows. Asks each method for its proposal and its source for guesses, so
  // trees may grow.
  std::vector<Planned> compose(std::span<Request* const> requests, size_t free_cells, size_t spare_cells) const;

 private:
  Options options_;
};

}  // namespace sluice

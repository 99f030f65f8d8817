// What a model can take.
#pragma once

#include <cstddef>
#include <optional>

#include "base/pass_times.h"

namespace sluice {

class HeadFeed;

struct Room {
  bool idle = false;                 // it may be given a batch now
  std::optional<double> next_entry;  // or at this time, unless news comes before
  size_t free_cells = 0;
  size_t spare_cells = 0;  // free ones that are not promised to committed tokens and roots
  size_t stages = 1;
  size_t under_way = 0;     // batches
  size_t widest_alive = 0;  // nodes of one of them that may still come true
  const PassTimes* times = nullptr;
  const PassTimes* prompt_times = nullptr;  // of batches with prompt rows
  bool knows_times = true;                  // from passes of its own kind, not just from prompts
  const HeadFeed* head = nullptr;           // if it is one
  bool shares = false;                      // the target waits while it computes: they have one device
};

}  // namespace sluice

// The coordinator's side of one model: its free cells, what goes out with its next batch, what is under way.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "base/pass_times.h"
#include "base/wire.h"
#include "engine/head_feed.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "tree/residency.h"

namespace sluice {

struct StageClock {
  double busy = 0;
  int64_t batches = 0;  // of which rows were computed
};

struct Lane {
  Lane(ModelId id, int32_t cells_there, size_t n_stages)
      : model(id), n_cells(cells_there), cells(cells_there), stages(n_stages) {}

  ModelId model;
  int32_t n_cells;
  CellPool cells;
  std::vector<PathUpdate> updates;  // go out with the next batch
  std::vector<StageClock> stages;
  PassTimes times;               // of all stages
  std::optional<HeadFeed> head;  // if it is one

  struct Flight {
    double submitted = 0;
    struct Sent {
      RequestId request;
      NodeId node;  // none: a prompt row
    };
    std::vector<Sent> rows;
  };
  std::map<BatchId, Flight> in_flight;
  int32_t first_stage_load = 0;  // batches submitted that it has not finished
  double transit = 0;            // what the last batch took from its submission to its outcome

  Room room(size_t promised_cells) const {
    // A single stage's outcome comes just after the word that it is free, and what goes next depends on it.
    return {.idle = first_stage_load == 0 && (stages.size() > 1 || in_flight.empty()),
            .free_cells = cells.available(),
            .spare_cells = cells.available() - std::min(cells.available(), promised_cells),
            .stages = stages.size(),
            .times = &times,
            .head = head ? &*head : nullptr};
  }
  // When the oldest batch under way should come out.
  std::optional<double> due() const {
    if (in_flight.empty()) return std::nullopt;
    return in_flight.begin()->second.submitted + transit;
  }
};

}  // namespace sluice

// The coordinator's side of one model: its free cells, what goes out with its next batch, what is under way.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "base/pass_times.h"
#include "engine/head_feed.h"
#include "engine/request.h"
#include "engine/scheduler.h"
#include "tree/residency.h"
#include "wire/batch.h"

namespace sluice {

struct StageClock {
  double busy = 0;
  int64_t batches = 0;  // of which rows were computed
  double lately = 0;    // seconds that it took for one, a running average
};

// What the workers of a model have to be told of the sequences. It goes out with the rows that need it, so a model that
// is asked for nothing is told nothing: what waits here is bounded by what has gone out before.
class SequenceNews {
 public:
  void open(SequenceId sequence, const SamplingParams& sampling) { unopened_[sequence] = sampling; }
  void commit(SequenceId sequence, Cell cell) { waiting_.push_back(Commit{sequence, cell}); }
  void truncate(SequenceId sequence, int32_t length, const SamplingParams& sampling);
  void close(SequenceId sequence);

  // A row of the sequence goes out next: whoever computes it must know of the sequence.
  void need(SequenceId sequence);
  // For the next batch, in order.
  std::vector<PathUpdate> take() { return std::exchange(waiting_, {}); }
  size_t size() const { return waiting_.size(); }

 private:
  std::map<SequenceId, SamplingParams> unopened_;  // of which no row has gone out
  std::vector<PathUpdate> waiting_;
};

struct Lane {
  Lane(ModelId id, int32_t cells_there, size_t n_stages)
      : model(id), n_cells(cells_there), cells(cells_there), stages(n_stages) {}

  ModelId model;
  int32_t n_cells;
  CellPool cells;
  size_t promised = 0;  // cells that the committed tokens and roots of requests may still ask for
  SequenceNews news;    // goes out with the next batch
  std::vector<StageClock> stages;
  PassTimes times;               // of all stages, of batches without prompt rows, which cost less than others
  PassTimes mixed_times;         // of those with prompt rows
  std::optional<HeadFeed> head;  // if it is one

  struct Flight {
    double submitted = 0;
    double busy = 0;       // seconds that stages have computed it
    bool prompts = false;  // among its rows
    struct Sent {
      RequestId request;
      NodeId node;  // none: a prompt row
    };
    std::vector<Sent> rows;
  };
  std::map<BatchId, Flight> in_flight;
  int32_t first_stage_load = 0;  // batches submitted that it has not finished
  double transit = 0;            // what the last batch took from its submission to its outcome
  double links = std::numeric_limits<double>::infinity();  // of that, what no stage took, at the least

  // A batch has come out.
  void came_out(const Flight& flight, double now);
  // Batches under way that keep the slowest stage busy. With more than that one waits in front of it, and so does all
  // that enters later, for good: what a slow batch has held up is never caught up with, since batches come out no
  // faster than they enter.
  size_t depth() const;

  // prompts: some wait to enter. They take longer between stages too, and no verdict that comes later makes them worse.
  Room room(bool prompts) const {
    const bool deep_enough = in_flight.size() >= depth() && (!prompts || stages.size() == 1);
    return {.idle = first_stage_load == 0 && !deep_enough,
            .free_cells = cells.available(),
            .spare_cells = cells.available() - std::min(cells.available(), promised),
            .stages = stages.size(),
            .under_way = in_flight.size(),
            .times = times.narrowest() > 0 ? &times : &mixed_times,
            .knows_times = times.narrowest() > 0,
            .head = head ? &*head : nullptr};
  }
  // When the oldest batch under way should come out.
  std::optional<double> due() const {
    if (in_flight.empty()) return std::nullopt;
    return in_flight.begin()->second.submitted + transit;
  }
};

}  // namespace sluice

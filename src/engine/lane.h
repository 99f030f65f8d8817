// The coordinator's side of one model: its free cells, what goes out with its next batch, what is under way.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/head_feed.h"
#include "engine/request.h"
#include "engine/room.h"
#include "engine/traffic.h"
#include "tree/residency.h"
#include "wire/batch.h"

namespace sluice {

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
      : model(id), n_cells(cells_there), cells(cells_there), traffic(n_stages) {}

  ModelId model;
  int32_t n_cells;
  CellPool cells;
  size_t promised = 0;  // cells that the committed tokens and roots of requests may still ask for
  SequenceNews news;    // goes out with the next batch
  Traffic traffic;
  std::optional<HeadFeed> head;  // if it is one

  // prompts: some wait to enter the target.
  Room room(bool prompts) const {
    return {.idle = traffic.takes_a_batch(prompts),
            .free_cells = cells.available(),
            .spare_cells = cells.available() - std::min(cells.available(), promised),
            .stages = traffic.stages().size(),
            .under_way = traffic.under_way().size(),
            .times = &traffic.times(),
            .knows_times = traffic.knows_times(),
            .head = head ? &*head : nullptr};
  }
};

}  // namespace sluice

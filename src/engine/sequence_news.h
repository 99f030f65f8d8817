// What the workers of a model have still to be told of the sequences.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "wire/batch.h"
#include "wire/sampling.h"

namespace sluice {

// It goes out with the rows that need it, so a model that is asked for nothing is told nothing: what waits here is
// bounded by what has gone out before.
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

 private:
  std::map<SequenceId, SamplingParams> unopened_;  // of which no row has gone out
  std::vector<PathUpdate> waiting_;
};

}  // namespace sluice

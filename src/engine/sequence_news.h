// What the workers of a model have still to be told of the sequences.
#pragma once

#include <cstddef>
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
  // checkpoint: as in Open.
  void open(SequenceId sequence, const SamplingParams& sampling, int32_t checkpoint) {
    unopened_[sequence] = {sequence, sampling, checkpoint};
  }
  // The sequence begins with the first `length` tokens of `from`, of which workers know as many: known().
  void fork(SequenceId sequence, SequenceId from, size_t length, const SamplingParams& sampling, int32_t checkpoint);
  void commit(SequenceId sequence, Cell cell) { waiting_.push_back(Commit{sequence, cell}); }
  void truncate(SequenceId sequence, size_t length, const SamplingParams& sampling, int32_t checkpoint);
  void close(SequenceId sequence);

  // Of so many tokens that a sequence has committed, how many workers know at the least, whatever becomes of what
  // waits.
  size_t known(SequenceId sequence, size_t committed) const;

  // A row of the sequence goes out next: whoever computes it must know of the sequence.
  void need(SequenceId sequence);
  // For the next batch, in order.
  std::vector<PathUpdate> take() {
    std::vector<PathUpdate> next;
    next.reserve(waiting_.size());  // likely as many again
    return std::exchange(waiting_, std::move(next));
  }

 private:
  // The fork with which a sequence begins, if that waits.
  std::vector<PathUpdate>::iterator beginning(SequenceId sequence);

  std::map<SequenceId, Open> unopened_;  // of which no row has gone out
  // Nothing in it depends on what waits before it of another sequence.
  std::vector<PathUpdate> waiting_;
};

}  // namespace sluice

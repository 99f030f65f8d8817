// What an engine does as it does it, without what is asked and answered: for who watches it run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "engine/trace.h"

namespace sluice {

// Seconds are those of the executor's clock.
struct Steps {
  // A batch has entered a model.
  struct Entered {
    BatchId batch;
    ModelId model;
    double time = 0;
    int32_t prompt_rows = 0, node_rows = 0;
  };
  // So many rows of a batch have come to this.
  struct Resolved {
    BatchId batch;
    Fate fate = Fate::kUnresolved;
    int32_t rows = 0;
    double time = 0;
  };
  // Tokens of a request have come, all at once.
  struct Came {
    double time = 0;
    int32_t request = 0, tokens = 0;
    bool hit = true;  // false: with a flush
  };
  std::vector<Entered> entered;
  std::vector<TraceSpan> spans;
  std::vector<Resolved> resolved;
  std::vector<Came> came;
  uint64_t lost = 0;  // for which there was no room

  bool empty() const { return entered.empty() && spans.empty() && resolved.empty() && came.empty() && lost == 0; }
};

// Keeps what happens until somebody takes it, up to so many entries; what is too much is counted. Thread safety: none.
class StepLog {
 public:
  explicit StepLog(size_t most) : most_(most) {}

  void entered(const Steps::Entered& batch);
  void computed(const TraceSpan& span);
  void resolved(BatchId batch, Fate fate, double now);  // a row
  void came(int32_t request, bool hit, double now);     // a token

  // What has happened since it was last taken.
  Steps take();

 private:
  bool has_room();

  size_t most_, n_ = 0;
  Steps steps_;
};

}  // namespace sluice

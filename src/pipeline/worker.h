// One stage: a state machine that turns a batch into the batch for the next stage, or, at the last, into verdicts or
// guesses. It shares nothing with anybody; executors bring it its messages and keep time.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "pipeline/computation.h"
#include "pipeline/ending.h"
#include "wire/batch.h"
#include "wire/report.h"

namespace sluice {

class Worker {
 public:
  // ending: of the last stage of its model; else empty.
  Worker(StageId stage, std::unique_ptr<Computation> computation, std::unique_ptr<Ending> ending)
      : stage_(stage), computation_(std::move(computation)), ending_(std::move(ending)) {}

  struct Done {
    Batch onward;               // for the next stage; its rows only, at the last
    Outcome outcome;            // of the last stage
    std::optional<Taps> taps;   // for the heads
    int32_t rows_computed = 0;  // those that the journal knew are not among them; when lazy: that would have been
    int32_t head_rows = 0;
    Lookups lookups;            // where it is kept by path
    uint64_t out_of_range = 0;  // numbers of states that f16 can't hold, where they are rounded to it
  };
  // Batches come in FIFO order, their states packed or not (pack_states); they leave as f32.
  Done process(Batch batch);

  // What a stage of the target has tapped. REQUIRES: a head's worker.
  void receive(const Taps& taps) { computation_->receive(taps); }

  // May come before or after the batches that it names.
  void amend(const Amendment& amendment);
  // What it has kept of amendments for batches to come. Whoever sends more than this names batches that never do.
  static constexpr size_t kMostPending = size_t{1} << 18;
  size_t pending() const { return dead_.size() + late_draws_.size(); }

  // As if nothing had ever come, but for what the journal knows.
  void forget();
  void keep_journal(int64_t bytes) { computation_->keep_journal(bytes); }
  Journal* journal() { return computation_->journal(); }  // null: none is kept
  // Stages were lost, and what the journal knows may come again.
  void begin_anew() {
    if (Journal* const known = journal(); known != nullptr) known->begin_anew();
  }

  StageId stage() const { return stage_; }
  Exactness exactness() const { return computation_->exactness(); }

 private:
  void follow(const Batch& batch);
  static void keep(Batch& batch, const std::vector<bool>& wanted);
  void drop_dead(Batch& batch);
  void add_late_draws(Batch& batch);

  StageId stage_;
  std::unique_ptr<Computation> computation_;
  std::unique_ptr<Ending> ending_;
  std::set<SequenceId> open_;
  std::vector<Amendment::DeadRow> dead_;          // of batches that have not passed yet
  std::vector<Amendment::LateDraws> late_draws_;  // likewise; for the ending
};

}  // namespace sluice

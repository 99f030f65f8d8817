// What is under way in the stages of one model, and what passes through them take.
#pragma once

#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/pass_times.h"
#include "engine/request.h"
#include "engine/stage_clock.h"
#include "wire/report.h"

namespace sluice {

class Traffic {
 public:
  // A batch that has been submitted.
  struct Flight {
    BatchId batch;
    double submitted = 0;
    bool prompts = false;  // among its rows
    struct Sent {
      RequestId request;
      NodeId node;  // none: a prompt row
    };
    std::vector<Sent> rows;  // unless its outcome names sequences, as the target's does
    double busy = 0;         // seconds that stages have computed it
  };

  explicit Traffic(size_t n_stages) : stages_(n_stages) {}

  void submitted(Flight flight);
  void computed(const StageReport& report);
  // Batches come out in the order in which they were submitted.
  Flight came_out(const Outcome& outcome, double now);

  const std::deque<Flight>& under_way() const { return flights_; }
  // Whether a batch that was submitted is still under way.
  bool holds(BatchId batch) const { return !flights_.empty() && flights_.front().batch <= batch; }
  // Nothing is under way, no report of the first stage either.
  bool is_quiet() const { return flights_.empty() && first_stage_load_ == 0; }
  // When a batch should come out, by what the last one took from its submission to its outcome.
  double due(const Flight& flight) const { return flight.submitted + transit_; }
  std::optional<double> next_due() const {
    return flights_.empty() ? std::nullopt : std::optional(due(flights_.front()));
  }
  double transit() const { return transit_; }

  // The first stage has nothing to do and may be given a batch. prompts: some wait to enter. They take longer between
  // stages too, and no verdict that comes later makes them worse.
  bool takes_a_batch(bool prompts) const {
    const bool deep_enough = flights_.size() >= depth() && (!prompts || stages_.size() == 1);
    return first_stage_load_ == 0 && !deep_enough;
  }
  // Batches under way that keep the slowest stage busy. With more than that one waits in front of it, and so does all
  // that enters later, for good: what a slow batch has held up is never caught up with, since batches come out no
  // faster than they enter.
  size_t depth() const;

  std::span<const StageClock> stages() const { return stages_; }
  // Of all stages, of batches without prompt rows, which cost less than others; as long as there was none, of others.
  const PassTimes& times() const { return knows_times() ? times_ : mixed_times_; }
  bool knows_times() const { return times_.narrowest() > 0; }  // of batches without prompt rows

 private:
  std::vector<StageClock> stages_;
  std::deque<Flight> flights_;
  int32_t first_stage_load_ = 0;  // batches submitted that it has not finished
  double transit_ = 0;            // what the last batch took from its submission to its outcome
  double links_ = std::numeric_limits<double>::infinity();  // of that, what no stage took, at the least
  PassTimes times_, mixed_times_;
};

}  // namespace sluice

// What is under way in the stages of one model, and what passes through them take.
#pragma once

#include <cmath>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/pass_times.h"
#include "engine/largest.h"
#include "engine/request.h"
#include "engine/stage_clock.h"
#include "pipeline/cost_model.h"
#include "wire/report.h"

namespace sluice {

// A running mean and how far values lie from it on average, with the weights of RFC 6298.
struct Smooth {
  double mean = 0, deviation = 0;
  bool known = false;

  void saw(double value) {
    constexpr double kOfMean = 1.0 / 8, kOfDeviation = 1.0 / 4;
    deviation = known ? deviation + kOfDeviation * (std::abs(value - mean) - deviation) : 0.0;
    mean = known ? mean + kOfMean * (value - mean) : value;
    known = true;
  }
};

class Traffic {
 public:
  // A batch that has been submitted.
  struct Flight {
    BatchId batch;
    double submitted = 0;
    bool prompts = false;  // among its rows
    int32_t n_rows = 0;
    int32_t alive = 0;  // of the rows, nodes on paths that may still come true
    struct Sent {
      RequestId request;
      NodeId node;  // none: a prompt row
    };
    std::vector<Sent> rows;  // unless its outcome names sequences, as the target's does
    double busy = 0;         // seconds that stages have computed it
    double waited = 0;       // seconds that it has lain in front of them
  };

  // sends_ahead: batches may enter before the first stage has said that it is free. Not a draft model's, whose next
  // questions depend on its answers.
  explicit Traffic(size_t n_stages, bool sends_ahead = true)
      : sends_ahead_(sends_ahead), stages_(n_stages), loads_(n_stages), pace_(2 * n_stages), row_(n_stages) {}

  // What batches with prompt rows will take, if a profile says so.
  void foresee_prompts(const CostModel& cost);

  void submitted(Flight flight);
  void computed(const StageReport& report, double now);
  // Batches come out in the order in which they were submitted.
  Flight came_out(const Outcome& outcome, double now);
  // What was under way will never come out.
  void lose_all() {
    flights_.clear();
    entering_.clear();
    reports_due_ = 0;
  }
  // What passes and links were seen to take is forgotten; what was foreseen is not. REQUIRES: is_settled().
  void forget();

  const std::deque<Flight>& under_way() const { return flights_; }
  Flight* flight(BatchId batch);  // null: it is not under way
  // Of the batches under way, the most nodes of one on paths that may still come true.
  size_t widest_alive() const;
  // Whether a batch that was submitted is still under way.
  bool holds(BatchId batch) const { return !flights_.empty() && flights_.front().batch <= batch; }
  // Nothing is under way, no report of the first stage either.
  bool is_quiet() const { return flights_.empty() && entering_.empty(); }
  // All has been heard that will be heard of what was submitted.
  bool is_settled() const { return flights_.empty() && reports_due_ == 0; }
  // When a batch should come out, by what the last one took from its submission to its outcome.
  double due(const Flight& flight) const { return flight.submitted + transit_; }
  std::optional<double> next_due() const {
    return flights_.empty() ? std::nullopt : std::optional(due(flights_.front()));
  }
  // How long a stage has a batch, what links take included; where the first stage is far off, what it has.
  double step() const { return is_near() ? transit_ / static_cast<double>(stages_.size()) : pace_.value(); }
  double transit() const { return transit_; }

  // Seconds that a batch of one row takes from its submission to its outcome at the least, with nothing beside it; none
  // as long as that is not known.
  std::optional<double> least_transit() const;

  // When a batch may be sent, so that it comes to the first stage when that falls free, and no more are under way than
  // keep the slowest stage busy: a time that may be past, or none before the next news. prompts: some wait to enter.
  // They take longer between stages too, and no verdict that comes later makes them worse.
  std::optional<double> next_entry(bool prompts) const;
  // Batches under way that keep the slowest stage busy. With more than that one waits in front of it, and so does all
  // that enters later, for good: what a slow batch has held up is never caught up with, since batches come out no
  // faster than they enter.
  size_t depth() const;
  // Batches that may be under way to the first stage, or there, at a time: as many as it takes to keep it busy although
  // its word that it is free, and the next batch, take a while.
  size_t credits() const;

  std::span<const StageClock> stages() const { return stages_; }
  // Of all stages, of batches without prompt rows, which cost less than others; as long as there was none, of others.
  const PassTimes& times() const { return knows_times() ? times_ : mixed_times_; }
  // Of batches with prompt rows: as foreseen, or as they were seen.
  const PassTimes& prompt_times() const { return prompt_times_; }
  bool knows_times() const { return times_.narrowest() > 0; }  // of batches without prompt rows

 private:
  // A batch of which the first stage has not said yet that it is through.
  struct Entering {
    BatchId batch;
    double submitted = 0;
    double pass = 0;  // seconds that it should take there
  };

  // How much a link to a stage has had to carry.
  struct LinkLoad {
    double batch = 0, row = 0;  // seconds that one occupies it, running averages
    void carried(double seconds, int32_t rows);
  };

  void first_is_through(const StageReport& report, double now);
  bool knows_stages() const { return stages_known_ == stages_.size(); }

  // The way to the first stage and back is so short that one may wait for its word.
  bool is_near() const;
  void sum_up(size_t stage, const StageClock& before);

  bool sends_ahead_;
  std::vector<StageClock> stages_;
  std::vector<LinkLoad> loads_;  // [stages]
  // Of both, kept with each report: in a long pipeline every batch brings many.
  Largest pace_;             // seconds for which the busiest stage or link had a batch lately; 0: not known
  Largest row_;              // seconds that a row adds to the busiest link
  double lately_ = 0;        // seconds for which all stages together had a batch
  size_t stages_known_ = 0;  // that have had one
  std::deque<Flight> flights_;
  std::deque<Entering> entering_;
  size_t reports_due_ = 0;  // of all stages
  double last_word_ = 0;    // of the first stage: when it came
  Smooth round_trip_;       // to the first stage and back, beside what happens there
  double shortest_trip_ = 0;
  double transit_ = 0;  // what the last batch took from its submission to its outcome
  double links_ = std::numeric_limits<double>::infinity();  // of that, what no stage took, at the least
  Smooth ways_;                                             // of that, what neither stages took nor waits before them
  PassTimes times_, mixed_times_, prompt_times_;
  bool foresees_prompts_ = false;
};

}  // namespace sluice

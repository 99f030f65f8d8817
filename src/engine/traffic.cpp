#include "engine/traffic.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/result.h"
#include "engine/policy.h"

namespace sluice {

namespace {

constexpr double kMost = 1e6;  // batches

}  // namespace

void Traffic::foresee_prompts(const CostModel& cost) {
  constexpr auto kQuantum = static_cast<int32_t>(policy::kPromptQuantum);
  foresees_prompts_ = true;
  for (int32_t rows = kQuantum; rows <= kMostRows; rows += kQuantum) {
    double slowest = 0.0;
    for (size_t s = 0; s < stages_.size(); ++s) {
      slowest = std::max(slowest, cost.stage_seconds(StageId(static_cast<int32_t>(s)), rows, 0));
      if (s > 0) slowest = std::max(slowest, cost.edge(s).occupied(cost.state_bytes(rows)));
    }
    prompt_times_.saw(rows, slowest);
  }
}

void Traffic::submitted(Flight flight) {
  const double usual = times().seconds(flight.n_rows);
  entering_.push_back({flight.batch, flight.submitted, usual > 0.0 ? usual : stages_.front().lately});
  flights_.push_back(std::move(flight));
  reports_due_ += stages_.size();
}

void Traffic::forget() {
  SLUICE_CHECK(is_settled(), "what is under way would be learnt from");
  Traffic fresh(stages_.size(), sends_ahead_);
  fresh.foresees_prompts_ = foresees_prompts_;
  if (foresees_prompts_) fresh.prompt_times_ = std::move(prompt_times_);
  *this = std::move(fresh);
}

void Traffic::computed(const StageReport& report, double now) {
  SLUICE_CHECK(report.stage.valid() && static_cast<size_t>(report.stage.value) < stages_.size(),
               "a report is of one of the model's stages");
  if (reports_due_ > 0) --reports_due_;
  const double seconds = report.end - report.begin;
  const auto s = static_cast<size_t>(report.stage.value);
  const StageClock before = stages_[s];
  stages_[s].worked(report);
  loads_[s].carried(report.received, report.rows_received);
  sum_up(s, before);
  Flight* const flight = this->flight(report.batch);
  const bool prompts = flight != nullptr && flight->prompts;
  if (flight != nullptr) flight->busy += seconds, flight->waited += report.waited;
  // A row costs what it adds to the slowest stage or link.
  const double pass = std::max(seconds, row_.value() * report.rows_computed);
  (prompts ? mixed_times_ : times_).saw(report.rows_computed, pass);
  if (prompts) times_.saw_others(report.rows_computed, pass);
  if (prompts && !foresees_prompts_) prompt_times_.saw(report.rows_computed, pass);
  if (report.stage == StageId(0)) first_is_through(report, now);
}

Traffic::Flight* Traffic::flight(BatchId batch) {
  const auto flight = std::lower_bound(flights_.begin(), flights_.end(), batch,
                                       [](const Flight& f, BatchId wanted) { return f.batch < wanted; });
  return flight != flights_.end() && flight->batch == batch ? &*flight : nullptr;
}

size_t Traffic::widest_alive() const {
  int32_t widest = 0;
  for (const Flight& flight : flights_) widest = std::max(widest, flight.alive);
  return static_cast<size_t>(widest);
}

void Traffic::first_is_through(const StageReport& report, double now) {
  SLUICE_CHECK(!entering_.empty() && entering_.front().batch == report.batch, "a stage takes batches in order");
  const double trip = now - entering_.front().submitted - report.waited - (report.end - report.begin);
  entering_.pop_front();
  shortest_trip_ =
      round_trip_.known ? std::min(trip, shortest_trip_ + policy::kForgetsTrip * (trip - shortest_trip_)) : trip;
  round_trip_.saw(trip);
  last_word_ = now;
}

void Traffic::LinkLoad::carried(double seconds, int32_t rows) {
  if (rows == 0) return;
  batch += policy::kNewestPass * (seconds - batch);
  row += policy::kNewestPass * (seconds / rows - row);
}

Traffic::Flight Traffic::came_out(const Outcome& outcome, double now) {
  SLUICE_CHECK(!flights_.empty() && flights_.front().batch == outcome.batch, "batches come out as they went in");
  Flight flight = std::move(flights_.front());
  flights_.pop_front();
  const double took = now - flight.submitted;
  links_ = std::min(links_, std::max(0.0, took - flight.busy));
  ways_.saw(std::max(0.0, took - flight.busy - flight.waited));
  // Of the target's only those that bring verdicts are news.
  if (outcome.model != kTarget || !outcome.accepted.empty()) transit_ = took;
  return flight;
}

bool Traffic::is_near() const {
  return !sends_ahead_ || !round_trip_.known || shortest_trip_ <= policy::kNear * pace_.value();
}

// After news of a stage.
void Traffic::sum_up(size_t stage, const StageClock& before) {
  const StageClock& now = stages_[stage];
  lately_ += now.lately - before.lately;
  stages_known_ += before.batches == 0 && now.batches > 0;
  pace_.set(stage, now.lately);
  pace_.set(stages_.size() + stage, loads_[stage].batch);
  row_.set(stage, loads_[stage].row);
}

size_t Traffic::depth() const {
  if (stages_.size() == 1 && is_near())
    return 1;  // its outcome comes just after the word that it is free; what goes next depends on it
  if (!knows_stages() || !std::isfinite(links_) || pace_.value() <= 0) return std::numeric_limits<size_t>::max();
  const double links = is_near() ? links_ : ways_.mean + ways_.deviation;
  return static_cast<size_t>(std::clamp(std::ceil((lately_ + links) / pace_.value() - policy::kMayIdle), 1.0, kMost));
}

size_t Traffic::credits() const {
  if (is_near()) return 1;
  return 2 + static_cast<size_t>(std::min(std::ceil(round_trip_.mean / pace_.value()), kMost));
}

// A pass of one row, on average of the stages; if none was so narrow, a row's share of one.
std::optional<double> Traffic::least_transit() const {
  if (!knows_times() || !knows_stages() || !std::isfinite(links_)) return std::nullopt;
  return static_cast<double>(stages_.size()) * times_.seconds(1) + links_;
}

std::optional<double> Traffic::next_entry(bool prompts) const {
  if (!entering_.empty() && entering_.size() >= credits()) return std::nullopt;
  if (flights_.size() >= depth() && (!prompts || stages_.size() == 1)) return std::nullopt;
  if (entering_.empty()) return 0.0;
  double through = last_word_;  // when the first stage will be heard to have done all that it was sent
  for (const Entering& e : entering_) through = std::max(through, e.submitted + round_trip_.mean) + e.pass;
  return through - round_trip_.mean - round_trip_.deviation;
}

}  // namespace sluice

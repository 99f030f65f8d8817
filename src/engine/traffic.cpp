#include "engine/traffic.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/result.h"
#include "engine/policy.h"

namespace sluice {

void Traffic::submitted(Flight flight) {
  flights_.push_back(std::move(flight));
  ++first_stage_load_;
}

void Traffic::computed(const StageReport& report) {
  const double seconds = report.end - report.begin;
  stages_[static_cast<size_t>(report.stage.value)].worked(seconds, report.rows_computed > 0);
  const auto flight = std::lower_bound(flights_.begin(), flights_.end(), report.batch,
                                       [](const Flight& f, BatchId batch) { return f.batch < batch; });
  const bool known = flight != flights_.end() && flight->batch == report.batch;
  const bool prompts = known && flight->prompts;
  if (known) flight->busy += seconds;
  (prompts ? mixed_times_ : times_).saw(report.rows_computed, seconds);
  if (prompts) times_.saw_others(report.rows_computed, seconds);
  if (report.stage == StageId(0)) --first_stage_load_;
}

Traffic::Flight Traffic::came_out(const Outcome& outcome, double now) {
  SLUICE_CHECK(!flights_.empty() && flights_.front().batch == outcome.batch, "batches come out as they went in");
  Flight flight = std::move(flights_.front());
  flights_.pop_front();
  const double took = now - flight.submitted;
  links_ = std::min(links_, std::max(0.0, took - flight.busy));
  // Of the target's only those that bring verdicts are news.
  if (outcome.model != kTarget || !outcome.accepted.empty()) transit_ = took;
  return flight;
}

size_t Traffic::depth() const {
  if (stages_.size() == 1)
    return 1;  // its outcome comes just after the word that it is free; what goes next depends on it
  double all = 0, slowest = 0;
  for (const StageClock& stage : stages_) {
    all += stage.lately;
    slowest = std::max(slowest, stage.lately);
  }
  const bool unknown = std::any_of(stages_.begin(), stages_.end(), [](const StageClock& s) { return s.batches == 0; });
  if (unknown || !std::isfinite(links_) || slowest <= 0) return std::numeric_limits<size_t>::max();
  constexpr double kMost = 1e6;
  return static_cast<size_t>(std::clamp(std::ceil((all + links_) / slowest - policy::kMayIdle), 1.0, kMost));
}

}  // namespace sluice

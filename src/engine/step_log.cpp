#include "engine/step_log.h"

namespace sluice {

bool StepLog::has_room() {
  if (n_ == most_) {
    ++steps_.lost;
    return false;
  }
  ++n_;
  return true;
}

void StepLog::entered(const Steps::Entered& batch) {
  if (has_room()) steps_.entered.push_back(batch);
}

void StepLog::computed(const TraceSpan& span) {
  if (has_room()) steps_.spans.push_back(span);
}

void StepLog::resolved(BatchId batch, Fate fate, double now) {
  auto& all = steps_.resolved;
  if (!all.empty() && all.back().batch == batch && all.back().fate == fate && all.back().time == now) {
    ++all.back().rows;
  } else if (has_room()) {
    all.push_back({batch, fate, 1, now});
  }
}

void StepLog::came(int32_t request, bool hit, double now) {
  auto& all = steps_.came;
  if (!all.empty() && all.back().request == request && all.back().time == now) {
    ++all.back().tokens;
    all.back().hit = all.back().hit && hit;
  } else if (has_room()) {
    all.push_back({now, request, 1, hit});
  }
}

Steps StepLog::take() {
  n_ = 0;
  return std::exchange(steps_, {});
}

}  // namespace sluice

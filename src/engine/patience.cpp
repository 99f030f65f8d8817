#include "engine/patience.h"

#include <algorithm>

#include "engine/policy.h"

namespace sluice {

std::optional<double> news_due(std::span<const Lane> lanes, std::span<Request* const> running, double now) {
  const Traffic& traffic = lanes.front().traffic();
  const double step = traffic.step();
  const auto soon = [&](double due) { return due + policy::kLate * step > now && due - now < policy::kSoon * step; };
  const auto has_root_in = [&](BatchId batch) {
    return std::any_of(running.begin(), running.end(), [&](const Request* request) {
      const Resident* root = request->speculation.target.find(request->speculation.tree.root().id);
      return root != nullptr && root->batch == batch && request->method.traits.speculates;
    });
  };
  std::optional<double> first;
  for (const Traffic::Flight& flight : traffic.under_way()) {
    const double due = traffic.due(flight);
    if (!soon(due) || !has_root_in(flight.batch)) continue;
    first = due;
    break;
  }
  for (const Lane& draft : lanes.subspan(1))
    if (const auto due = draft.traffic().next_due(); due && soon(*due)) first = std::min(first.value_or(*due), *due);
  if (first) *first += policy::kLate * step;
  return first;
}

bool answer_due(const Lane& lane, double now) {
  const auto due = lane.traffic().next_due();
  return lane.model() != kTarget && due && *due - now < policy::kSoon * lane.traffic().transit();
}

bool is_quiet(const Lane& lane, std::span<Request* const> running) {
  const auto waits = [&](const Request* request) {
    return request->last_verified.valid() && request->source_of(lane.model()) &&
           !lane.head()->knows_committed(*request);
  };
  return lane.traffic().is_quiet() && !(lane.head() && std::any_of(running.begin(), running.end(), waits));
}

}  // namespace sluice

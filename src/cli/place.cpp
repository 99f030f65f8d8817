#include "cli/place.h"

#include <algorithm>
#include <utility>

#include "pipeline/cost_model.h"

namespace sluice {

namespace {

constexpr size_t kMostShared = 2;

// What stands between the neighbours of a host when it is left out: one of them and the coordinator if it is the first
// or the last, and else, not being known, the slower of its two links.
Link instead_of(const Profile& profile, size_t host) {
  if (host == 0) return profile.direct[1];
  if (host + 1 == profile.direct.size()) return profile.direct[host - 1];
  return std::ranges::max(profile.edges[host], profile.edges[host + 1], {}, &Link::latency);
}

}  // namespace

Place without_weakest(Place place) {
  Profile& profile = place.profile;
  const auto weakest = std::ranges::min_element(profile.speeds) - profile.speeds.begin();
  profile.edges[static_cast<size_t>(weakest) + 1] = instead_of(profile, static_cast<size_t>(weakest));
  profile.edges.erase(profile.edges.begin() + weakest);
  profile.direct.erase(profile.direct.begin() + weakest);
  profile.speeds.erase(profile.speeds.begin() + weakest);
  place.hosts.erase(place.hosts.begin() + weakest);
  return place;
}

DraftPlace with_stage(int32_t stage) { return {.kind = DraftPlace::Kind::kStage, .stage = stage}; }

Place priced_at(Place place, const DraftPlace& draft) {
  place.draft = draft;
  place.profile.draft_on.reset();
  if (draft.kind == DraftPlace::Kind::kStage) place.profile.draft_on = draft.stage;
  return place;
}

void share_its_host(Place& place) {
  const auto address = [](const HostOptions& host) { return host.address.text(); };
  const auto host = std::ranges::find(place.hosts, place.draft.host.text(), address);
  if (place.draft.kind != DraftPlace::Kind::kHost || host == place.hosts.end()) return;
  const auto stage = static_cast<size_t>(host - place.hosts.begin());
  for (CostCurve& pass : place.profile.drafts) pass = pass.times(place.profile.speed(stage));
  place = priced_at(std::move(place), with_stage(static_cast<int32_t>(stage)));
}

std::vector<size_t> least_slowed(const Place& place, const std::vector<CostCurve>& drafts, int32_t d_model) {
  const CostModel cost(place.profile, place.cuts, d_model);
  std::vector<std::pair<double, size_t>> stages;
  for (size_t s = 0; s < place.cuts.size(); ++s) {
    const double row = cost.stage_seconds(StageId(static_cast<int32_t>(s)), 1, s + 1 == place.cuts.size() ? 1 : 0);
    stages.emplace_back(row + (drafts.empty() ? 0.0 : drafts.back().at(1)) / place.profile.speed(s), s);
  }
  std::ranges::sort(stages);
  std::vector<size_t> least;
  for (const auto& [seconds, stage] : stages)
    if (least.size() < kMostShared) least.push_back(stage);
  return least;
}

std::optional<size_t> fastest_but(const Place& all, std::span<const HostOptions> these) {
  std::optional<size_t> fastest;
  for (size_t h = 0; h < all.hosts.size(); ++h) {
    if (std::ranges::find(these, all.hosts[h].address, &HostOptions::address) != these.end()) continue;
    if (!fastest || all.profile.speeds[h] > all.profile.speeds[*fastest]) fastest = h;
  }
  return fastest;
}

}  // namespace sluice

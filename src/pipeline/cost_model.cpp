#include "pipeline/cost_model.h"

#include <algorithm>
#include <limits>

namespace sluice {

double CostModel::stage_seconds(StageId stage, int32_t rows, int32_t head_rows) const {
  if (rows == 0) return 0.0;  // a batch that only carries updates
  const double speed = profile_.speed(static_cast<size_t>(stage.value));
  const double woken = profile_.experts.factor(rows);
  if (!profile_.per_layer()) return profile_.stage.at(rows) * woken / speed;
  const LayerRange range = cuts_[static_cast<size_t>(stage.value)];
  double seconds = range.count() * profile_.layer.at(rows) * woken;
  if (range.first == 0) seconds += profile_.embedding.at(rows);
  return (seconds + profile_.head.at(head_rows)) / speed;
}

double CostModel::step_seconds() const {
  double slowest = 0.0;
  for (size_t s = 0; s < cuts_.size(); ++s)
    slowest = std::max(slowest, stage_seconds(StageId(static_cast<int32_t>(s)), 1, s + 1 == cuts_.size() ? 1 : 0));
  return slowest;
}

Link CostModel::edge(size_t i) const {
  if (!profile_.edges.empty()) return profile_.edges[i];
  return i == 0 ? Link() : profile_.link;
}

// With one link for all, the coordinator is beside the first stage, and what stages report costs nothing.
Link CostModel::to_stage(StageId stage) const {
  if (!profile_.edges.empty()) return profile_.way_to(static_cast<size_t>(stage.value));
  return stage == StageId(0) ? Link() : profile_.link;
}
Link CostModel::from_stage(StageId stage) const {
  return profile_.edges.empty() ? Link() : profile_.way_to(static_cast<size_t>(stage.value));
}
Link CostModel::taps_of(StageId stage) const {
  return profile_.edges.empty() ? profile_.link : profile_.way_to(static_cast<size_t>(stage.value));
}

std::vector<LayerRange> balanced_cuts(const std::vector<double>& layer_cost, double embedding, double head,
                                      int32_t n_stages, const Fits& fits, std::span<const double> speeds) {
  const int32_t n = static_cast<int32_t>(layer_cost.size());
  SLUICE_CHECK(n_stages >= 1 && n_stages <= n, "as many stages as layers at most");
  SLUICE_CHECK(speeds.empty() || speeds.size() == static_cast<size_t>(n_stages), "a speed for each stage");
  std::vector<double> prefix(layer_cost.size() + 1, 0.0);
  for (int32_t i = 0; i < n; ++i) prefix[i + 1] = prefix[i] + layer_cost[i];
  const auto cost = [&](int32_t s, int32_t first, int32_t last) {
    const double work = prefix[last] - prefix[first] + (first == 0 ? embedding : 0.0) + (last == n ? head : 0.0);
    return speeds.empty() ? work : work / speeds[static_cast<size_t>(s)];
  };
  // best[s][i]: the least cost of the dearest of s stages over the first i layers.
  const double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(n_stages + 1, std::vector<double>(n + 1, kNever));
  std::vector<std::vector<int32_t>> from(n_stages + 1, std::vector<int32_t>(n + 1, 0));
  best[0][0] = 0.0;
  for (int32_t s = 1; s <= n_stages; ++s)
    for (int32_t i = s; i <= n - (n_stages - s); ++i)
      for (int32_t j = s - 1; j < i; ++j) {
        const double dearest = std::max(best[s - 1][j], cost(s - 1, j, i));
        if (dearest < best[s][i] && (!fits || fits(StageId(s - 1), {j, i}))) best[s][i] = dearest, from[s][i] = j;
      }
  if (best[n_stages][n] == kNever) return {};
  std::vector<LayerRange> ranges(n_stages);
  for (int32_t s = n_stages, last = n; s >= 1; --s) {
    ranges[s - 1] = {from[s][last], last};
    last = from[s][last];
  }
  return ranges;
}

int32_t stage_of_layer(std::span<const LayerRange> cuts, int32_t layer) {
  const auto at = std::find_if(cuts.begin(), cuts.end(), [layer](const LayerRange& cut) { return layer <= cut.last; });
  SLUICE_CHECK(at != cuts.end(), "a layer of the model");
  return static_cast<int32_t>(at - cuts.begin());
}

Result<std::vector<LayerRange>> explicit_cuts(const std::vector<int32_t>& cuts, int32_t n_layers) {
  std::vector<LayerRange> ranges;
  int32_t first = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const int32_t last = i < cuts.size() ? cuts[i] : n_layers;
    if (last <= first || last > n_layers)
      return input_error("--cuts must name rising layers between 1 and " + std::to_string(n_layers - 1) + ", not " +
                         std::to_string(last));
    ranges.push_back({first, last});
    first = last;
  }
  return ranges;
}

}  // namespace sluice

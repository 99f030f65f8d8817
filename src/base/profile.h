// What work costs on some hardware: drives the simulated clock and paces the real one.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

// Seconds as a function of the number of rows. Given at points, in between linear or by steps (the value of the next
// point), beyond the last point linear with its last slope, or `step_add` more for every further `step_rows`.
struct CostCurve {
  struct Point {
    double rows = 0, seconds = 0;
  };
  enum class Between : uint8_t { kLinear, kStep };
  std::vector<Point> points;  // by rising rows; empty: costs nothing
  Between between = Between::kLinear;
  double step_rows = 0, step_add = 0;

  double at(double rows) const;
  // One that takes so many times as long.
  CostCurve times(double factor) const;
};

// How much longer a pass of a mixture of experts takes for several rows than for one, where it takes as long as its
// weights are read: each row wakes `used` of `of` experts, and those that several rows wake are read once.
struct ExpertCost {
  int32_t of = 0, used = 0;  // 0: there are none
  double share = 0;          // of what a pass of one row reads, that are its experts

  // Experts that so many rows wake, on average, if each chooses for itself and none is dearer to all than another.
  double woken(double rows) const;
  double factor(double rows) const { return of == 0 ? 1.0 : 1.0 - share + share * woken(rows) / used; }
};

// One way of a link. A frame occupies it for its bytes' time, then takes the latency; the next one waits until it is
// free.
struct Link {
  double latency = 0;    // seconds
  double bandwidth = 0;  // bytes a second; 0: unlimited
  double jitter = 0;     // latencies vary by this share of it, up and down
  double occupied(double bytes) const { return bandwidth > 0 ? bytes / bandwidth : 0.0; }
  double seconds(double bytes) const { return latency + occupied(bytes); }
};

// A device and link profile. Either `stage` gives the time of a whole stage, whatever its layers, or `layer`, `head`
// and `embedding` are added up.
struct Profile {
  std::string name, description, source;
  CostCurve stage;
  CostCurve layer, head, embedding;
  ExpertCost experts;             // the curves of `stage` and `layer` are times their factor
  std::vector<CostCurve> drafts;  // a pass of each draft model, the smallest first
  std::vector<double> speeds;     // of each stage's device, times that of the curves; empty: all 1
  // The stage on whose device draft models and heads run too, one pass at a time; none: they have one of their own.
  std::optional<int32_t> draft_on;
  double prune_seconds = 0;  // pruning after a verdict; overlapped with the transfer, so it never adds to a step here
  // Of the ways from stage to stage, from the last one to the coordinator, and from draft models to it. The coordinator
  // is beside the first stage.
  Link link;
  // If not empty, the ways that batches go instead: from the coordinator to stage 0, from each stage to the next, from
  // the last one to the coordinator. Then `link` is that of draft models alone, there and back, unless they are with a
  // stage.
  std::vector<Link> edges;
  // With `edges`: between the coordinator and each stage, for what goes neither with the batches nor round with them.
  // Empty: as the shorter way round.
  std::vector<Link> direct;
  uint64_t seed = 0;  // of the links' jitter

  bool per_layer() const { return stage.points.empty(); }
  double speed(size_t stage) const { return speeds.empty() ? 1.0 : speeds[stage]; }
  // Between the coordinator and a stage, for what does not go with the batches. REQUIRES: edges.
  Link way_to(size_t stage) const;
  // Whether it is for so many stages. The error names the profile and says for how many it is.
  Status check_stages(size_t n_stages) const;
  // What a pipeline of `n_stages` stages costs that runs draft model `i` of `n`. A profile with fewer draft models than
  // `n` gives them to the largest, and its first one to all that are left. The error names the profile if it has none.
  Result<Profile> for_draft(size_t i, size_t n, int32_t n_stages = 1) const;

  // Reads the JSON of docs/profiles.md. Errors name the field.
  static Result<Profile> parse(const std::string& text, const std::string& where);
  // A shipped profile by name (`uniform`, `paper-8x`, …) or a file.
  static Result<Profile> load(const std::string& name_or_path);
  static std::vector<std::string> shipped();
  nlohmann::json to_json() const;
  // Its links in words, as "22, 38, 57 ms, 100 Mbit/s, jitter 10 %, seed 1"; empty: they cost nothing.
  std::string links_text() const;
};

}  // namespace sluice

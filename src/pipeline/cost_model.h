// A profile applied to a model that has been cut: what each stage, the head and each transfer take.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/half.h"
#include "base/ids.h"
#include "base/layer_range.h"
#include "base/profile.h"
#include "base/result.h"
#include "wire/recipe.h"

namespace sluice {

class CostModel {
 public:
  CostModel(Profile profile, std::vector<LayerRange> cuts, int32_t d_model, Activations activations = Activations::kF32)
      : profile_(std::move(profile)),
        cuts_(std::move(cuts)),
        d_model_(d_model),
        number_bytes_(activations == Activations::kF16 ? kHalfBytes : kFloatBytes) {}

  // Seconds that `stage` takes for a batch of which it computes `rows` rows and `head_rows` logits.
  double stage_seconds(StageId stage, int32_t rows, int32_t head_rows) const;
  // Of the slowest stage at width 1: the length of a pipeline step.
  double step_seconds() const;

  // What travels, in bytes. Hidden states come with rows from a stage to the next, and to the heads (f32).
  static constexpr double kMessageBytes = 64.0;  // verdicts, amendments, reports
  static double batch_bytes(int32_t rows) { return kMessageBytes + kRowBytes * rows; }
  double state_bytes(int32_t rows) const { return batch_bytes(rows) + number_bytes_ * rows * d_model_; }
  double tap_bytes(int32_t rows) const { return batch_bytes(rows) + kFloatBytes * rows * d_model_; }

  // The ways that batches go, i from 0 to the number of stages: to stage i, from the coordinator or the stage before;
  // at the end, with the outcome, to the coordinator.
  Link edge(size_t i) const;
  // What goes past batches: amendments to a stage, its reports, what it taps to the heads beside the coordinator.
  Link to_stage(StageId stage) const;
  Link from_stage(StageId stage) const;
  Link taps_of(StageId stage) const;
  const Profile& profile() const { return profile_; }

 private:
  static constexpr double kRowBytes = 32.0, kFloatBytes = sizeof(float), kHalfBytes = sizeof(Half);

  Profile profile_;
  std::vector<LayerRange> cuts_;
  int32_t d_model_;
  double number_bytes_;  // of a state on its way to the next stage
};

// Cuts `n_layers` layers into `n_stages` ranges such that the dearest stage is as cheap as can be; the first stage pays
// `embedding` besides, the last `head`. layer_cost: [n_layers], any unit. fits: whether a stage may have these layers;
// if there are no cuts such that all may, there are none in the result. speeds: [n_stages], of their devices; empty:
// all alike. REQUIRES: 1 <= n_stages <= n_layers.
using Fits = std::function<bool(StageId, LayerRange)>;
std::vector<LayerRange> balanced_cuts(const std::vector<double>& layer_cost, double embedding, double head,
                                      int32_t n_stages, const Fits& fits = {}, std::span<const double> speeds = {});

// The stage that computes a layer's states, l from 1: of the neighbours of a cut the one before it.
int32_t stage_of_layer(std::span<const LayerRange> cuts, int32_t layer);

// The cuts that a user gave: the first layers of the second, third, … stage, rising. Errors name --cuts.
Result<std::vector<LayerRange>> explicit_cuts(const std::vector<int32_t>& cuts, int32_t n_layers);

}  // namespace sluice

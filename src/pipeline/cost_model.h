// A profile applied to a model that has been cut: what each stage, the head and each transfer take.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/layer_range.h"
#include "base/profile.h"
#include "base/result.h"

namespace sluice {

class CostModel {
 public:
  CostModel(Profile profile, std::vector<LayerRange> cuts, int32_t d_model)
      : profile_(std::move(profile)), cuts_(std::move(cuts)), d_model_(d_model) {}

  // Seconds that `stage` takes for a batch of which it computes `rows` rows and `head_rows` logits.
  double stage_seconds(StageId stage, int32_t rows, int32_t head_rows) const;
  // Of the slowest stage at width 1: the length of a pipeline step.
  double step_seconds() const;
  // From a stage to the next: a batch of `rows` rows with hidden states (f32).
  double transfer_seconds(int32_t rows) const { return profile_.link.seconds(64.0 + 4.0 * rows * (d_model_ + 8)); }
  // Small messages: verdicts and amendments.
  double message_seconds() const { return profile_.link.seconds(64.0); }
  const Profile& profile() const { return profile_; }

 private:
  Profile profile_;
  std::vector<LayerRange> cuts_;
  int32_t d_model_;
};

// Cuts `n_layers` layers into `n_stages` ranges such that the dearest stage is as cheap as can be; the first stage pays
// `embedding` besides, the last `head`. layer_cost: [n_layers], any unit. REQUIRES: 1 <= n_stages <= n_layers.
std::vector<LayerRange> balanced_cuts(const std::vector<double>& layer_cost, double embedding, double head,
                                      int32_t n_stages);

// The stage that computes a layer's states, l from 1: of the neighbours of a cut the one before it.
int32_t stage_of_layer(std::span<const LayerRange> cuts, int32_t layer);

// The cuts that a user gave: the first layers of the second, third, … stage, rising. Errors name --cuts.
Result<std::vector<LayerRange>> explicit_cuts(const std::vector<int32_t>& cuts, int32_t n_layers);

}  // namespace sluice

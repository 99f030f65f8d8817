// The target's captured states as tensors.
#pragma once

#include "train/capture.h"
#include "train/torch.h"

namespace sluice {

// Of one layer: [tokens, d_model], a copy.
torch::Tensor states_of(const Captured& example, int32_t layer, int64_t d_model);
// Of the last of the layers that were asked for, which heads ask for to know the target's distribution.
torch::Tensor last_states_of(const Captured& example, int64_t d_model);
// Of several layers side by side: [tokens, layers.size() * d_model].
torch::Tensor features_of(const Captured& example, const std::vector<int32_t>& layers, int64_t d_model);

// The three layers that EAGLE-3 takes its features from unless told otherwise.
std::vector<int32_t> feature_layers(int32_t n_layers);

}  // namespace sluice

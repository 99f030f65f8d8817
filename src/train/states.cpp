#include "train/states.h"

#include <algorithm>

#include "train/parameters.h"

namespace sluice {

torch::Tensor states_of(const Captured& example, int32_t layer, int64_t d_model) {
  const auto values = example.layer(layer);
  return to_tensor(values, {static_cast<int64_t>(values.size()) / d_model, d_model});
}

torch::Tensor last_states_of(const Captured& example, int64_t d_model) {
  return states_of(example, example.layers.back(), d_model);
}

torch::Tensor features_of(const Captured& example, const std::vector<int32_t>& layers, int64_t d_model) {
  std::vector<torch::Tensor> parts;
  for (const int32_t layer : layers) parts.push_back(states_of(example, layer, d_model));
  return torch::cat(parts, -1);
}

std::vector<int32_t> feature_layers(int32_t n_layers) {
  return {std::min(2, n_layers), n_layers / 2, std::max(1, n_layers - 3)};
}

}  // namespace sluice

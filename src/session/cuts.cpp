#include "session/cuts.h"

#include <algorithm>
#include <string>

#include "pipeline/cost_model.h"

namespace sluice {

Result<std::vector<LayerRange>> choose_cuts(const ModelFile& model, const SessionOptions& options,
                                            const std::optional<Profile>& profile) {
  const int32_t n_layers = model.hparams().n_layers;
  const size_t n_stages = options.cuts.empty() ? static_cast<size_t>(options.stages) : options.cuts.size() + 1;
  if (profile) SLUICE_TRY_STATUS(profile->check_stages(n_stages));
  if (!options.cuts.empty()) return explicit_cuts(options.cuts, n_layers);
  if (options.stages > n_layers)
    return input_error("--stages " + std::to_string(options.stages) + ": the model has only " +
                       std::to_string(n_layers) + " layers; give --stages " + std::to_string(n_layers) + " at most");
  std::vector<double> layers(static_cast<size_t>(n_layers));
  if (profile && profile->per_layer()) {
    std::fill(layers.begin(), layers.end(), profile->layer.at(1));
    return balanced_cuts(layers, profile->embedding.at(1), profile->head.at(1), options.stages);
  }
  // At width 1 a stage reads its weights once: bytes are time. The embedding reads one row.
  for (int32_t l = 0; l < n_layers; ++l) layers[static_cast<size_t>(l)] = static_cast<double>(model.layer_bytes(l));
  return balanced_cuts(layers, 0.0, static_cast<double>(model.head_bytes()), options.stages);
}

}  // namespace sluice

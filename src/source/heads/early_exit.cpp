#include "source/heads/early_exit.h"

namespace sluice {

void EarlyExit::run(const Batch& batch, std::vector<float>& hidden) {
  const size_t d = layers_->d_model();
  std::vector<BlockRow> rows;
  std::vector<float> x;
  for (const Row& row : batch.rows) {
    const Feature* feature = feature_of(batch, row);
    rows.push_back(head_row(row));
    const auto state = concatenated(feature->cell, parameters().taps.front());
    x.insert(x.end(), state.begin(), state.end());
    if (feature->last) states_.forget(feature->cell);
  }
  std::vector<float> inputs(x.size());
  for (size_t layer = 0; layer < layers_->n_layers(); ++layer) {
    layers_->normalise_for(layer, x.data(), rows.size(), inputs.data());
    layers_->compute(layer, rows, inputs.data(), x.data());
  }
  hidden.clear();
  for (size_t i = 0; i < batch.rows.size(); ++i)
    if (batch.rows[i].kind == Row::Kind::kNode)
      hidden.insert(hidden.end(), x.begin() + static_cast<ptrdiff_t>(i * d),
                    x.begin() + static_cast<ptrdiff_t>((i + 1) * d));
}

}  // namespace sluice

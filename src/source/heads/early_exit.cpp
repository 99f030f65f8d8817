#include "source/heads/head_modules.h"

namespace sluice {

namespace {

// PPSD's early exit: a norm and an output matrix, perhaps with layers before them, on the states after one of the
// target's layers.
class EarlyExit final : public HeadModule {
 public:
  EarlyExit(std::unique_ptr<HeadLayers> layers, int32_t n_cells) : HeadModule(std::move(layers), n_cells, 0) {}

  void run(const Batch& batch, std::vector<float>& hidden) override {
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
};

}  // namespace

std::unique_ptr<HeadModule> make_early_exit(std::unique_ptr<HeadLayers> layers, int32_t n_cells) {
  return std::make_unique<EarlyExit>(std::move(layers), n_cells);
}

}  // namespace sluice

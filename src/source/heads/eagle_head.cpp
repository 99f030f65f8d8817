#include <algorithm>

#include "source/heads/head_modules.h"
#include "source/heads/paired_head.h"

namespace sluice {

namespace {

// EAGLE-3 and P-EAGLE. What is known of the target is a feature made of the states after three of its layers. P-EAGLE
// guesses further tokens in the same pass, from rows that hold a learnt embedding and a learnt state.
class EagleHead final : public PairedHead {
 public:
  // `guesses`: in a row; EAGLE-3: 1.
  EagleHead(std::unique_ptr<HeadLayers> layers, int32_t n_cells, int32_t guesses)
      : PairedHead(std::move(layers), n_cells), guesses_(static_cast<size_t>(guesses)), n_cells_(n_cells) {
    const HeadWeights& w = layers_->weights();
    hidden_norm_ = to_f32_vector(w.hidden_norm);
    feature_norm_ = vector_or_empty(w.feature_norm);
    if (guesses == 1) return;
    const auto d = layers_->d_model();
    mask_embedding_ = to_f32_vector(w.mask_embedding);
    for (int64_t row = 0; row < w.mask_hidden.ne[1]; ++row) {
      mask_hidden_.resize(mask_hidden_.size() + d);
      copy_row_f32(w.mask_hidden, row, {mask_hidden_.end() - static_cast<ptrdiff_t>(d), mask_hidden_.end()});
    }
  }

  size_t guesses() const override { return guesses_; }

 private:
  // Each row sees those before it.
  void add_further(Rows& rows, int32_t number) const override {
    const size_t d = layers_->d_model(), n_states = mask_hidden_.size() / d;
    for (size_t j = 1; j < guesses_; ++j) {
      BlockRow row = rows.rows.back();
      row.cell = Cell(n_cells_ + number * static_cast<int32_t>(guesses_ - 1) + static_cast<int32_t>(j) - 1);
      ++row.position;
      row.path.branch.push_back(row.cell);
      add(rows, std::move(row), mask_embedding_.data(), &mask_hidden_[std::min(j, n_states - 1) * d]);
    }
  }

  std::vector<float> feature(Cell target) override {
    const size_t d = layers_->d_model();
    std::vector<float> x = concatenated(target, parameters().taps.front()), y(d);
    if (!feature_norm_.empty()) layers_->normalise(x.data(), 1, x.size(), feature_norm_, x.data());
    layers_->product(layers_->fc().front(), x.data(), 1, y.data());
    return y;
  }

  std::vector<float> compute(Rows& rows) override {
    const size_t d = layers_->d_model(), n = rows.rows.size();
    std::vector<float> inputs(n * 2 * d);
    for (size_t i = 0; i < n; ++i) {
      layers_->normalise_for(0, &rows.embedding[i * d], 1, &inputs[i * 2 * d]);
      layers_->normalise(&rows.state[i * d], 1, d, hidden_norm_, &inputs[i * 2 * d + d]);
      if (parameters().norm_before_residual) std::copy_n(&inputs[i * 2 * d + d], d, &rows.state[i * d]);
    }
    std::vector<float> x = std::move(rows.state);
    for (size_t layer = 0; layer < layers_->n_layers(); ++layer) {
      if (layer > 0) layers_->normalise_for(layer, x.data(), n, inputs.data());
      layers_->compute(layer, rows.rows, inputs.data(), x.data());
    }
    return x;
  }

  size_t guesses_;
  int32_t n_cells_;
  std::vector<float> hidden_norm_, feature_norm_;
  std::vector<float> mask_embedding_, mask_hidden_;
};

}  // namespace

std::unique_ptr<HeadModule> make_eagle_head(std::unique_ptr<HeadLayers> layers, int32_t n_cells, int32_t guesses) {
  return std::make_unique<EagleHead>(std::move(layers), n_cells, guesses);
}

}  // namespace sluice

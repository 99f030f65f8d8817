#include <algorithm>

#include "source/heads/head_modules.h"

namespace sluice {

namespace {

// EAGLE-3 and P-EAGLE. The row of a token pairs its embedding with the state of the token before it: the target's
// three-layer feature where that token has been verified, else the state in which this head guessed the token. P-EAGLE
// guesses further tokens in the same pass, from rows that hold a learnt embedding and a learnt state.
//
// The token at position 0 has none before it and no row.
class EagleHead final : public HeadModule {
 public:
  // `guesses`: in a row; EAGLE-3: 1.
  EagleHead(std::unique_ptr<HeadLayers> layers, int32_t n_cells, int32_t guesses)
      : HeadModule(std::move(layers), n_cells, /*first_position=*/1),
        guesses_(static_cast<size_t>(guesses)),
        n_cells_(n_cells) {
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

  void run(const Batch& batch, std::vector<float>& hidden) override {
    const size_t d = layers_->d_model();
    Rows rows;
    for (const Refresh& r : batch.refreshes) {
      add_known(rows, r.sequence, r.position, r.own, r.token, &r.cell);
      if (r.last) states_.forget(r.cell);
    }
    std::vector<std::optional<size_t>> asked;  // where a node's states begin, if it has a row
    std::vector<Cell> cells;
    for (const Row& row : batch.rows) {
      const Feature* feature = feature_of(batch, row);
      const bool is_node = row.kind == Row::Kind::kNode;
      const size_t before = rows.rows.size();
      if (feature != nullptr) {
        add_known(rows, row.sequence, row.position, row.cell, row.token, &feature->cell);
        if (feature->last) states_.forget(feature->cell);
      } else if (const auto guess = guessed_.find(row.parent); is_node && guess != guessed_.end()) {
        std::vector<float> embedding(d);
        layers_->embed(row.token, embedding.data());
        add(rows, head_row(row), embedding.data(), guess->second.data());
      }
      if (!is_node) continue;
      const bool there = rows.rows.size() > before;
      if (there) add_masked(rows, static_cast<int32_t>(asked.size()));
      asked.push_back(there ? std::optional(before) : std::nullopt);
      cells.push_back(row.cell);
    }
    const std::vector<float> states = compute(rows);
    hidden.assign(asked.size() * guesses_ * d, 0.0f);
    for (size_t i = 0; i < asked.size(); ++i) {
      guessed_.erase(cells[i]);
      if (!asked[i]) continue;
      const auto begin = states.begin() + static_cast<ptrdiff_t>(*asked[i] * d);
      std::copy_n(begin, guesses_ * d, hidden.begin() + static_cast<ptrdiff_t>(i * guesses_ * d));
      guessed_[cells[i]].assign(begin, begin + static_cast<ptrdiff_t>(d));
    }
  }

 private:
  struct Rows {
    std::vector<BlockRow> rows;
    std::vector<float> embedding;  // [rows, d_model]
    std::vector<float> state;      // of the token before. [rows, d_model]
  };
  // From a token and the target's states of the one before it; nothing for the token at position 0.
  void add_known(Rows& rows, SequenceId sequence, int32_t position, Cell own, Token token, const Cell* before) {
    if (position == 0 || before == nullptr) return;
    std::vector<float> embedding(layers_->d_model());
    layers_->embed(token, embedding.data());
    add(rows, head_row(sequence, position, own), embedding.data(), feature(*before).data());
  }

  void add(Rows& rows, BlockRow row, const float* embedding, const float* state) const {
    const size_t d = layers_->d_model();
    rows.rows.push_back(std::move(row));
    rows.embedding.insert(rows.embedding.end(), embedding, embedding + d);
    rows.state.insert(rows.state.end(), state, state + d);
  }

  // Behind the last row: the rows of further guesses, each seeing those before it. `number`: of the asked row.
  void add_masked(Rows& rows, int32_t number) const {
    const size_t d = layers_->d_model(), n_states = mask_hidden_.size() / d;
    for (size_t j = 1; j < guesses_; ++j) {
      BlockRow row = rows.rows.back();
      row.cell = Cell(n_cells_ + number * static_cast<int32_t>(guesses_ - 1) + static_cast<int32_t>(j) - 1);
      ++row.position;
      row.path.branch.push_back(row.cell);
      add(rows, std::move(row), mask_embedding_.data(), &mask_hidden_[std::min(j, n_states - 1) * d]);
    }
  }

  std::vector<float> feature(Cell target) {
    const size_t d = layers_->d_model();
    std::vector<float> x = concatenated(target, parameters().taps.front()), y(d);
    if (!feature_norm_.empty()) layers_->normalise(x.data(), 1, x.size(), feature_norm_, x.data());
    layers_->product(layers_->fc().front(), x.data(), 1, y.data());
    return y;
  }

  std::vector<float> compute(Rows& rows) {
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
  std::unordered_map<Cell, std::vector<float>> guessed_;  // by own cells: the states in which tokens were guessed
};

}  // namespace

std::unique_ptr<HeadModule> make_eagle_head(std::unique_ptr<HeadLayers> layers, int32_t n_cells, int32_t guesses) {
  return std::make_unique<EagleHead>(std::move(layers), n_cells, guesses);
}

}  // namespace sluice

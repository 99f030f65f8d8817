#pragma once

#include "source/heads/head_module.h"

namespace sluice {

// EAGLE-3 and P-EAGLE. The row of a token pairs its embedding with the state of the token before it: the target's
// three-layer feature where that token has been verified, else the state in which this head guessed the token. P-EAGLE
// guesses further tokens in the same pass, from rows that hold a learnt embedding and a learnt state.
//
// The token at position 0 has none before it and no row.
class EagleHead final : public HeadModule {
 public:
  // `guesses`: in a row; EAGLE-3: 1.
  EagleHead(std::unique_ptr<HeadLayers> layers, int32_t n_cells, int32_t guesses);
  // Cells for the rows of further guesses.
  static int32_t extra_cells(int32_t guesses) { return (guesses - 1) * kMostRows; }

  size_t guesses() const override { return guesses_; }
  void run(const Batch& batch, std::vector<float>& hidden) override;

 private:
  struct Rows {
    std::vector<BlockRow> rows;
    std::vector<float> embedding;  // [rows, d_model]
    std::vector<float> state;      // of the token before. [rows, d_model]
  };
  // From a token and the target's states of the one before it; nothing for the token at position 0.
  void add_known(Rows& rows, SequenceId sequence, int32_t position, Cell own, Token token, const Cell* before);
  void add(Rows& rows, BlockRow row, const float* embedding, const float* state) const;
  void add_masked(Rows& rows, int32_t number) const;
  std::vector<float> feature(Cell target);
  std::vector<float> compute(Rows& rows);

  size_t guesses_;
  int32_t n_cells_;
  std::vector<float> hidden_norm_, feature_norm_;
  std::vector<float> mask_embedding_, mask_hidden_;
  std::unordered_map<Cell, std::vector<float>> guessed_;  // by own cells: the states in which tokens were guessed
};

}  // namespace sluice

// Heads whose row of a token pairs its embedding with the state of the token before it: what is known of the target
// where that token has been verified, else the state in which the head itself guessed the token. The token at position
// 0 has none before it and no row.
#pragma once

#include <unordered_map>
#include <vector>

#include "source/heads/head_module.h"

namespace sluice {

class PairedHead : public HeadModule {
 public:
  void run(const Batch& batch, std::vector<float>& hidden) override;

 protected:
  PairedHead(std::unique_ptr<HeadLayers> layers, int32_t n_cells)
      : HeadModule(std::move(layers), n_cells, /*first_position=*/1) {}

  struct Rows {
    std::vector<BlockRow> rows;
    std::vector<float> embedding;  // [rows, d_model]
    std::vector<float> state;      // of the token before. [rows, d_model]
  };
  void add(Rows& rows, BlockRow row, const float* embedding, const float* state) const;

  // What the target's states of a verified token come to: [d_model].
  virtual std::vector<float> feature(Cell target) = 0;
  // Adds guesses() - 1 rows of further guesses behind the last row, which is the `number`-th that is asked for one.
  virtual void add_further(Rows&, int32_t /*number*/) const {}
  // The states after the head's layers: [rows, d_model].
  virtual std::vector<float> compute(Rows& rows) = 0;
  // What the row of a guessed token takes, from the state in which it was guessed, [d_model].
  virtual std::vector<float> handed_on(std::span<const float> state) const { return {state.begin(), state.end()}; }

 private:
  // From a token and the target's states of the one before it; nothing for the token at position 0.
  void add_known(Rows& rows, SequenceId sequence, int32_t position, Cell own, Token token, const Cell* before);

  std::unordered_map<Cell, std::vector<float>> guessed_;  // by own cells: what the rows of guessed tokens take
};

}  // namespace sluice

// A trained head as its worker runs it: the target's states come in, guesses go out.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "source/heads/head_layers.h"
#include "wire/report.h"

namespace sluice {

// The target's states as they come to a head, by the target's cells.
class TappedStates {
 public:
  // `certain`: of prompt rows only these layers are kept.
  TappedStates(size_t d_model, std::vector<int32_t> certain) : d_(d_model), certain_(std::move(certain)) {}

  // A cell's newest token counts: what comes late of an older one is left out.
  void receive(const Taps& taps);
  void forget(Cell cell) { cells_.erase(cell); }
  void forget(SequenceId sequence) {
    std::erase_if(cells_, [sequence](const auto& cell) { return cell.second.sequence == sequence; });
  }

  // [d_model] after layer `layer`. Zeros if there is none: then the question came for a token that is dead, whose cell
  // has been given to another.
  const float* state(Cell cell, int32_t layer) const;
  Token token(Cell cell) const;
  void forget_all() { cells_.clear(); }
  size_t size() const { return cells_.size(); }

 private:
  struct Entry {
    BatchId batch;
    SequenceId sequence;
    Token token = kNoToken;
    std::unordered_map<int32_t, std::vector<float>> states;  // by layer
  };
  size_t d_;
  std::vector<int32_t> certain_;
  std::vector<float> nothing_ = std::vector<float>(d_);
  std::unordered_map<Cell, Entry> cells_;
};

class HeadModule {
 public:
  struct Options {
    int32_t n_cells = 0;  // of the head's own
    int32_t threads = 1;
    int32_t guesses = 1;  // tokens that a P-EAGLE head guesses at once
  };
  static Result<std::unique_ptr<HeadModule>> create(const HeadFile& file, const Options& options);
  virtual ~HeadModule() = default;

  const HeadParameters& parameters() const { return layers_->parameters(); }
  // How many tokens in a row are guessed for a node.
  virtual size_t guesses() const { return 1; }

  void receive(const Taps& taps) { states_.receive(taps); }
  void forget_received() { states_.forget_all(); }

  // As StageRunner::enter.
  void enter(std::span<const PathUpdate> updates, std::span<const Row> rows);

  // Refreshes, then computes the rows, which have been entered. hidden: for each node row guesses() states, in the
  // order of the rows: [node rows, guesses(), d_model]. REQUIRES: the parents of node rows came in earlier batches.
  virtual void run(const Batch& batch, std::vector<float>& hidden) = 0;

  // hidden: [n, d_model]; logits: [n, n_guessable].
  void logits(std::span<const float> hidden, std::span<float> logits) { layers_->logits(hidden, logits); }

 protected:
  // `first_position`: where the head's rows begin in a sequence; their positions are counted from it.
  HeadModule(std::unique_ptr<HeadLayers> layers, int32_t n_cells, int32_t first_position)
      : layers_(std::move(layers)),
        // Of a prompt's tokens nobody asks how far they have got: what counts is the last depth.
        states_(layers_->d_model(), layers_->parameters().taps.back()),
        paths_(n_cells),
        first_position_(first_position) {}

  // Of a token that has entered, in the head's cell `own`.
  BlockRow head_row(SequenceId sequence, int32_t position, Cell own) const;
  BlockRow head_row(const Row& row) const { return head_row(row.sequence, row.position, row.cell); }

  // The state after a layer, or the embedding. out: [d_model]
  void state(Cell target, int32_t layer, float* out) const;
  // The states after these layers, one after another.
  std::vector<float> concatenated(Cell target, std::span<const int32_t> layers) const;

  std::unique_ptr<HeadLayers> layers_;
  TappedStates states_;
  Paths paths_;

 private:
  int32_t first_position_;
};

// The feature of a row, or nullptr.
const Feature* feature_of(const Batch& batch, const Row& row);

}  // namespace sluice

// What a worker computes with: some layers of a model, a whole model of which only what is asked for is computed, or a
// head.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/spread.h"
#include "compute/stage_runner.h"
#include "pipeline/journal.h"
#include "pipeline/memo.h"
#include "source/heads/head_module.h"
#include "wire/batch.h"
#include "wire/report.h"

namespace sluice {

// Batches come in FIFO order, each to enter() with all its rows and to run() with those that are left of it; then the
// last stage of a model asks for logits.
class Computation {
 public:
  virtual ~Computation() = default;

  virtual void enter(const Batch& batch) = 0;
  // Leaves the states that the next stage goes on with in batch.hidden. Gives the number of rows that it computed; when
  // lazy: would have.
  virtual int32_t run(Batch& batch) = 0;

  // Of the batch that was run last: what heads read of it, if they read anything here.
  virtual std::optional<Taps> taps(const Batch&) const { return std::nullopt; }
  // The logits of rows of the batch that was run last, by their places in it: [rows, guesses(), n_logits].
  virtual void logits(const Batch& batch, std::span<const size_t> rows, std::span<float> logits) = 0;
  // How many tokens in a row are guessed for a row.
  virtual int32_t guesses() const { return 1; }

  // What tells the path of a row that has entered from all others, those of other models included, where results are
  // kept by path; then logits are computed only when they are asked for.
  virtual std::optional<PathKey> key(const Row&) const { return std::nullopt; }

  // StageRunner::take_out_of_range().
  virtual uint64_t take_out_of_range() { return 0; }

  // Keeps what it computes, with states of so many bytes, for the case that other stages are lost.
  virtual void keep_journal(int64_t /*bytes*/) {}
  virtual Journal* journal() { return nullptr; }  // null: there is none

  // What a stage of the target has tapped. REQUIRES: it is a head's.
  virtual void receive(const Taps& taps);
  // Drops what was received.
  virtual void forget_received() {}

  // Its threads, for other work between two calls. Valid as long as this.
  virtual Spread spread() { return {}; }
  virtual Exactness exactness() const = 0;
};

std::unique_ptr<Computation> layers_of(std::unique_ptr<StageRunner> runner, StageId stage,
                                       const HyperParameters& hparams);
// A stage before the last of a model whose last computes all: it passes on zeros for states, d_state of a row.
std::unique_ptr<Computation> nothing(int32_t d_state);
std::unique_ptr<Computation> head_of(std::unique_ptr<HeadModule> head);

}  // namespace sluice

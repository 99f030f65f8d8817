// Layers [a, b) of a model on one device: hidden states in, hidden states out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/choice.h"
#include "base/result.h"
#include "base/spread.h"
#include "model/model_file.h"
#include "wire/batch.h"
#include "wire/recipe.h"

namespace sluice {

// What a backend promises of the hidden state and the logits of a row; printed with every result. The weakest is last.
enum class Exactness : uint8_t {
  // They depend on the tokens of its path alone, to the last bit: not on the other rows of the batch, the batch's
  // width, which cells hold the path, the cuts, the number of threads, or the row's Kind.
  kBitwise,
  // The same on one device with one number of threads, as far as was tried when it was made ready: it computes a fixed
  // number of rows at a time.
  kWidthLocked,
  kGreedyChecked,  // not to the last bit: greedy answers are to be compared with plain decoding's
  kNone,
};
inline constexpr Choice<Exactness> kExactnesses[] = {{"bitwise", Exactness::kBitwise},
                                                     {"width-locked", Exactness::kWidthLocked},
                                                     {"greedy-checked", Exactness::kGreedyChecked},
                                                     {"none", Exactness::kNone}};
inline const char* name(Exactness exactness) { return name_of(kExactnesses, exactness); }
// Whether an answer may change its method midway, and nobody sees it.
inline bool holds_to_the_bit(Exactness exactness) { return exactness <= Exactness::kWidthLocked; }

// Thread safety: none; each runner belongs to one worker.
class StageRunner {
 public:
  virtual ~StageRunner() = default;

  virtual const StageOptions& options() const = 0;
  virtual Exactness exactness() const = 0;

  // Applies updates and enters all `rows` into the paths (also those that will not be computed), in this order. Prompt
  // rows are committed. Must be called for every batch, in FIFO order. REQUIRES: cells in range; each row's parent is
  // the cell of the token before it in its sequence.
  virtual void enter(std::span<const PathUpdate> updates, std::span<const Row> rows) = 0;

  // Whether the cell still holds what was written there, in all layers: those with a window forget.
  virtual bool holds(Cell) const { return true; }

  // Computes rows that have been entered; parents before or with their children, in order.
  // hidden: [rows, d_model] f32, row i belongs to rows[i]; read unless this runner embeds, then overwritten.
  // REQUIRES: rows.size() <= max_rows.
  virtual void run(std::span<const Row> rows, std::span<float> hidden) = 0;

  // The tapped hidden states of the last run(): [rows, d_model] of options().taps[i].
  virtual std::span<const float> tap(size_t i) const = 0;

  // How many numbers of states could not be held by f16, where options().rounded has them rounded, since this was asked
  // last.
  virtual uint64_t take_out_of_range() { return 0; }

  // The output head on some hidden states. hidden: [n, d_model]; logits: [n, n_logits], those of the options or
  // the model's. REQUIRES: with_head.
  virtual void logits(std::span<const float> hidden, std::span<float> logits) = 0;

  // Its threads, for other work between two calls. Valid as long as the runner.
  virtual Spread spread() = 0;
};

// On options.device. Errors (kInput): options that do not fit the model, a weight of a type that has no product, no
// such device; or as GgmlLayers::create().
Result<std::unique_ptr<StageRunner>> make_stage_runner(const ModelFile& model, const StageOptions& options);

}  // namespace sluice

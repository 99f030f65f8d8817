// Layers [a, b) of a model on one device: hidden states in, hidden states out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/spread.h"
#include "model/model_file.h"
#include "wire/batch.h"

namespace sluice {

enum class KvType : uint8_t { kF16, kF32 };

struct StageOptions {
  LayerRange range;
  bool with_embedding = true;  // rows come as tokens
  bool with_head = true;       // logits() can be asked
  int32_t n_logits = 0;        // of so many first tokens only; 0: all
  KvType kv = KvType::kF16;
  int32_t n_cells = 0;     // cells 0 … n_cells - 1 may be used
  int32_t max_rows = 256;  // the widest batch
  int32_t threads = 1;
  // Rows may hold tokens of a larger vocabulary: their embedding is zero. (Else such a token ends the program.)
  bool foreign_tokens = false;
  std::vector<int32_t> taps;  // layers whose output is kept: tap l is the hidden state after layer l (0: the embedding)
};

// Exactness: the hidden state and the logits of a row depend on the tokens of its path alone, to the last bit: not on
// the other rows of the batch, the batch's width, which cells hold the path, the cuts, the number of threads, or the
// row's Kind. Thread safety: none; each runner belongs to one worker.
class StageRunner {
 public:
  static Result<StageRunner> create(const ModelFile& model, const StageOptions& options);
  StageRunner(StageRunner&&) noexcept;
  StageRunner& operator=(StageRunner&&) noexcept;
  ~StageRunner();

  const StageOptions& options() const;

  // Applies updates and enters all `rows` into the paths (also those that will not be computed), in this order. Prompt
  // rows are committed. Must be called for every batch, in FIFO order. REQUIRES: cells in range; each row's parent is
  // the cell of the token before it in its sequence.
  void enter(std::span<const PathUpdate> updates, std::span<const Row> rows);

  // Computes rows that have been entered; parents before or with their children, in order.
  // hidden: [rows, d_model] f32, row i belongs to rows[i]; read unless this runner embeds, then overwritten.
  // REQUIRES: rows.size() <= max_rows.
  void run(std::span<const Row> rows, std::span<float> hidden);

  // The tapped hidden states of the last run(): [rows, d_model] of options().taps[i].
  std::span<const float> tap(size_t i) const;

  // The output head on some hidden states. hidden: [n, d_model]; logits: [n, n_logits], those of the options or
  // the model's.
  void logits(std::span<const float> hidden, std::span<float> logits);

  // Its threads, for other work between two calls. Valid as long as the runner.
  Spread spread();

 private:
  class Impl;
  explicit StageRunner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// How exact a backend is; printed with every result.
inline constexpr const char* kCpuExactness = "bitwise";

}  // namespace sluice

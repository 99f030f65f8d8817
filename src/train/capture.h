// The frozen target, quantised as it will run, over stored sequences: the hidden states that heads are trained on are,
// bit for bit, those that the engine will compute.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compute/stage_runner.h"
#include "model/model_file.h"
#include "train/corpus.h"

namespace sluice {

struct Captured {
  const Example* example = nullptr;
  std::vector<int32_t> layers;             // ascending
  std::vector<std::vector<float>> states;  // by layers[i]: [tokens, d] f32
  // REQUIRES: the layer was asked for.
  std::span<const float> layer(int32_t l) const;
};

struct CaptureOptions {
  std::vector<int32_t> taps;  // layers, in any order, doubles allowed
  int32_t max_tokens = 1024;  // of a sequence; the rest of longer ones is left out
  int32_t threads = 1;
  KvType kv = KvType::kF16;
};

// What a sequence begins with like the one before it, as those of a chat template do, is not computed again: states
// depend on the path alone. Thread safety: none.
class Capture {
 public:
  static Result<Capture> create(const ModelFile& model, CaptureOptions options);
  // `example` must outlive the result.
  Captured run(const Example& example);

 private:
  Capture(std::unique_ptr<StageRunner> runner, CaptureOptions options, const HyperParameters& hparams)
      : runner_(std::move(runner)), options_(std::move(options)), d_model_(hparams.d_model), folds_(hparams.folds()) {}

  int32_t shared(const Example& example, int32_t n) const;  // tokens that it begins with like the one before
  void remember(const Captured& captured, int32_t n);

  std::unique_ptr<StageRunner> runner_;
  CaptureOptions options_;
  int32_t d_model_;
  bool folds_;
  std::vector<float> hidden_;
  struct {
    std::vector<Token> tokens;  // empty: no sequence is open
    std::vector<std::vector<float>> states;
  } before_;  // the beginning of the sequence that was run last
};

}  // namespace sluice

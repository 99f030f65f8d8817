// One stage: a state machine that turns a batch into the batch for the next stage, or, at the last, into verdicts. It
// shares nothing with anybody; executors bring it its messages and keep time.
#pragma once

#include <optional>
#include <vector>

#include "base/wire.h"
#include "compute/stage_runner.h"
#include "model/model_file.h"
#include "verify/verifier.h"

namespace sluice {

class Worker {
 public:
  struct Options {
    StageId stage;
    bool last = false;
    // Lazy: the stages before the last compute nothing, and the last has all layers and computes what is on the path.
    bool lazy = false;
    int32_t d_model = 0, n_vocab = 0;
  };
  // `runner` is empty for a lazy stage before the last.
  Worker(Options options, std::optional<StageRunner> runner);

  struct Done {
    Batch onward;               // for the next stage; its rows only, at the last
    Outcome outcome;            // of the last stage
    int32_t rows_computed = 0;  // when lazy: that would have been
    int32_t head_rows = 0;
  };
  // Batches come in FIFO order.
  Done process(Batch batch);

  // May come before or after the batch that it names.
  void cancel(const Cancel& cancel);

  StageId stage() const { return options_.stage; }

 private:
  void drop(Batch& batch, const std::vector<bool>& keep) const;
  void drop_cancelled(Batch& batch);
  void drop_dead(Batch& batch);
  void verify(const Batch& batch, Done& done);

  Options options_;
  std::optional<StageRunner> runner_;
  Verifier verifier_;                     // used by the last stage
  std::vector<Cancel::Entry> cancelled_;  // of batches that have not passed yet
  std::vector<float> logits_;
};

struct PipelineOptions {
  std::vector<LayerRange> cuts;
  KvType kv = KvType::kF16;
  int32_t n_cells = 0;
  int32_t max_rows = 256;
  int32_t threads = 1;  // a stage
  bool lazy = false;
};

// The workers of a whole model, stage by stage.
Result<std::vector<Worker>> make_workers(const ModelFile& model, const PipelineOptions& options);

}  // namespace sluice

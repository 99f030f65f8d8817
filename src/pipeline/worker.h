// One stage: a state machine that turns a batch into the batch for the next stage, or, at the last, into verdicts or
// guesses. It shares nothing with anybody; executors bring it its messages and keep time.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "compute/stage_runner.h"
#include "model/model_file.h"
#include "pipeline/lazy_runner.h"
#include "source/heads/head_module.h"
#include "verify/verifier.h"
#include "wire/batch.h"
#include "wire/report.h"

namespace sluice {

class Worker {
 public:
  struct Options {
    StageId stage;
    bool last = false;
    int32_t d_model = 0, n_vocab = 0;  // n_vocab: rows of logits
    // 0: the target's worker, whose last stage verifies. Else a draft model's: for each row its last stage gives so
    // many candidates at most, of the first `guessable` tokens.
    int32_t candidates = 0, guessable = 0;
    std::vector<Token> vocabulary = {};  // a draft model's: the token of each row of logits; empty: row i is token i
    bool feeds_heads = false;            // the target's: what its runner taps goes to the heads
  };
  Worker(Options options, StageRunner runner);
  // Lazy: the stages before the last compute nothing; the last has all layers, and computes what is asked for and not
  // in the memo. `runner` is empty before the last.
  Worker(Options options, std::optional<LazyRunner> runner, std::shared_ptr<Memo> memo);
  // A head's only worker; its batches are a draft model's with features and refreshes.
  Worker(Options options, std::unique_ptr<HeadModule> head);

  struct Done {
    Batch onward;               // for the next stage; its rows only, at the last
    Outcome outcome;            // of the last stage
    std::optional<Taps> taps;   // for the heads
    int32_t rows_computed = 0;  // when lazy: that would have been
    int32_t head_rows = 0;
  };
  // Batches come in FIFO order.
  Done process(Batch batch);

  // What a stage of the target has tapped. REQUIRES: a head's worker.
  void receive(const Taps& taps) { head_->receive(taps); }

  // May come before or after the batches that it names.
  void amend(const Amendment& amendment);

  StageId stage() const { return options_.stage; }

 private:
  void learn(const Batch& batch);
  void drop(Batch& batch, const std::vector<bool>& keep) const;
  void drop_dead(Batch& batch);
  void add_late_draws(Batch& batch);
  void drop_hopeless(Batch& batch);
  void verify(const Batch& batch, Done& done);
  void know(const Batch& batch, std::span<const size_t> alive, std::vector<size_t>& known);
  Accepted accept_lazily(const Batch& batch, size_t i);
  std::span<const float> logits_of(size_t i, std::span<const size_t> known) const;
  Taps tapped(const Batch& batch) const;
  void guess(const Batch& batch, Done& done);
  void guess_by_head(const Batch& batch, Done& done);
  std::vector<Candidate> candidates(const TopLogits& top, SequenceId sequence, int32_t position) const;
  std::vector<TopLogits> tops(std::span<const Row> rows, std::span<const float> hidden);
  TopLogits top(std::span<const float> logits) const;
  bool lazy() const { return memo_ != nullptr; }
  bool drafts() const { return options_.candidates > 0; }

  Options options_;
  std::optional<StageRunner> runner_;
  std::optional<LazyRunner> lazy_;
  std::shared_ptr<Memo> memo_;
  std::unique_ptr<HeadModule> head_;
  Verifier verifier_;                                        // used by the target's last stage
  std::unordered_map<SequenceId, SamplingParams> sampling_;  // used by a draft's last stage
  std::vector<Amendment::DeadRow> dead_;                     // of batches that have not passed yet
  std::vector<Amendment::LateDraws> late_draws_;             // likewise; used by the target's last stage
  std::vector<float> logits_;
};

struct PipelineOptions {
  std::vector<LayerRange> cuts;
  KvType kv = KvType::kF16;
  int32_t n_cells = 0;
  int32_t max_rows = 256;
  int32_t threads = 1;  // a stage
  // Lazy if there is a memo. Several models may share one.
  std::shared_ptr<Memo> memo;
  // 0: the target. Else a draft model that gives so many candidates a row, of tokens below `guessable`.
  int32_t candidates = 0, guessable = 0;
  // Of the target: the layers whose states go to heads, from the stages that compute them.
  std::vector<int32_t> taps;
};

// The workers of a whole model, stage by stage.
Result<std::vector<Worker>> make_workers(const ModelFile& model, const PipelineOptions& options);

// The worker of a head, which guesses `guesses` tokens in a row if it can. Of the options n_cells, threads, candidates
// and guessable count.
Result<std::vector<Worker>> make_head_worker(const HeadFile& head, const PipelineOptions& options, int32_t guesses);

// The stage that computes a layer's states, l from 1: of the neighbours of a cut the one before it.
int32_t stage_of_layer(std::span<const LayerRange> cuts, int32_t layer);

}  // namespace sluice

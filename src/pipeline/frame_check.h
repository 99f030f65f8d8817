// What another process sends, before it is believed.
//
// The codec has seen to it that bytes are a message. Whether it is one that an honest peer sends is said here: cells,
// tokens, positions, widths and numbers of states in range, sequences that are open, rows that follow their parents. A
// stage computes on nothing else. Errors (kInput) say what is wrong with it; the peer is at fault, and whatever it
// sends after that is of no worth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/result.h"
#include "compute/paths.h"
#include "model/head_file.h"
#include "model/model_file.h"
#include "wire/batch.h"
#include "wire/recipe.h"
#include "wire/report.h"

namespace sluice {

// What the messages to a stage may hold.
struct StageLimits {
  int32_t n_cells = 0, max_rows = 0;
  int32_t n_tokens = 0;                         // of the vocabulary
  bool foreign_tokens = false;                  // rows may hold others
  int32_t d_state = 0;                          // numbers that a batch brings for a row: 0 or d_model
  Activations activations = Activations::kF32;  // as which it brings them
  bool folds = false;                           // HyperParameters::folds()
  std::optional<HeadParameters> head;

  static StageLimits of(const StageRecipe& recipe, const ModelFile& model);
  static StageLimits of(const StageRecipe& recipe, const HeadFile& head);
};

// For one stage.
class FrameCheck {
 public:
  explicit FrameCheck(StageLimits limits) : limits_(std::move(limits)), paths_(limits_.n_cells) {}

  // One for the same stage that has seen nothing.
  FrameCheck anew() const { return FrameCheck(limits_); }

  // In the order in which the worker is to process them. After an error this is of no more use.
  Status check(const Batch& batch);
  Status check(const Amendment& amendment) const;
  Status check(const Taps& taps) const;  // to a head

 private:
  Status check(const PathUpdate& update) const;
  Status check(const Row& row) const;
  Status check(const Draws& draws) const;
  Status check_for_layers(const Batch& batch) const;
  Status check_for_head(const Batch& batch) const;
  Status check_depth(int32_t depth) const;
  Status follow_folded(const PathUpdate& update);
  Status follow(const Batch& batch);
  int64_t end_of_tokens() const;

  StageLimits limits_;
  Paths paths_;
  std::unordered_set<SequenceId> open_;
  struct Folded {
    int32_t tokens = 0;  // that were committed by the last batch
    int32_t checkpoint = 0, next_checkpoint = 0;
  };
  std::unordered_map<SequenceId, Folded> folded_;  // where layers fold, of open sequences
  BatchId newest_;                                 // that was checked
};

// For the coordinator, of one stage: what it says of the batches that its model was given.
class ReportCheck {
 public:
  // The stage of `model` that was made of this recipe. n_tokens: of the vocabulary.
  ReportCheck(ModelId model, StageRecipe recipe, int32_t n_tokens)
      : model_(model), recipe_(std::move(recipe)), n_tokens_(n_tokens) {}

  void submitted(const Batch& batch);
  // Of each batch a report, in their order; of the last stage an outcome as well, likewise. After an error this is of
  // no more use.
  Status check(const StageReport& report);
  Status check(const Outcome& outcome);

 private:
  struct Given {
    BatchId id;
    size_t n_rows;
    std::vector<std::pair<SequenceId, Cell>> nodes;  // to the last stage
  };
  Status check_sender(ModelId model) const;
  Status check_verdict(const Accepted& accepted, const Given& given) const;
  Status check_guess(const Drafted& drafted, size_t n_rows) const;

  ModelId model_;
  StageRecipe recipe_;
  int32_t n_tokens_;
  std::deque<Given> to_report_, to_conclude_;
};

// For the coordinator, of a head: the states of the target that have come to it. Each stage that is tapped sends some
// of each batch, in their order.
class ArrivalCheck {
 public:
  explicit ArrivalCheck(std::span<const StageRecipe> target);

  void submitted(const Batch& batch);  // to the target
  Status check(const TapsArrived& taps);

 private:
  std::map<StageId, std::deque<BatchId>> awaited_;  // of those that are tapped
};

}  // namespace sluice

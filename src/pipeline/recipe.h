// Pipelines from models: what each stage is made of, and the workers made of that.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "model/head_file.h"
#include "model/model_file.h"
#include "pipeline/frame_check.h"
#include "pipeline/memo.h"
#include "pipeline/worker.h"
#include "wire/recipe.h"

namespace sluice {

struct PipelineOptions {
  std::vector<LayerRange> cuts;
  // Of every stage: its cells, rows, threads and, unless `devices` say it, its device. Of the target's also `taps`, the
  // layers whose states go to heads, from the stages that compute them. REQUIRES: no taps if lazy.
  StageOptions stage;
  std::vector<std::string> devices = {};        // one a stage; none: that of `stage`. REQUIRES: one device if lazy.
  Activations activations = Activations::kF32;  // between its stages
  int64_t journal = 0;                          // bytes of states that each keeps; 0: it keeps no journal
  int64_t memory = 0;                           // as fit_experts() has it; 0: all experts are packed
  // Lazy if there is a memo. Several models may share one.
  std::shared_ptr<Memo> memo;
  bool stored = false;  // if lazy: stages in other processes, and messages between them of true size
  // 0: the target. Else a draft model that gives so many candidates a row, of tokens below `guessable`.
  int32_t candidates = 0, guessable = 0;
};

// Those of a whole model, stage by stage; without the identity of its files, which takes reading them.
std::vector<StageRecipe> recipes_for(const ModelFile& model, const PipelineOptions& options);
// Of a head, which guesses `guesses` tokens in a row if it can. Of the options the stage's cells, rows and threads,
// candidates and guessable count.
StageRecipe recipe_for(const HeadFile& head, const PipelineOptions& options, int32_t guesses);

// The worker of a stage. `model`, or `head`, is the one that the recipe names, opened already; `memo` is for what is
// lazy. Errors (kInput): a weight of a type that has no product, or options that do not fit the model.
Result<Worker> make_worker(const StageRecipe& recipe, const ModelFile& model, std::shared_ptr<Memo> memo = nullptr);
Result<Worker> make_worker(const StageRecipe& recipe, const HeadFile& head);

// A stage in a process of its own, and what it may be sent.
struct Stage {
  Worker worker;
  FrameCheck frames;
};
// `model`, or `head`, is the one that the recipe names, opened already; `memo` is for what is lazy or stored. Errors
// (kInput): it is another one than was meant.
Result<Stage> make_stage(const StageRecipe& recipe, const ModelFile& model, std::shared_ptr<Memo> memo = nullptr);
Result<Stage> make_stage(const StageRecipe& recipe, const HeadFile& head);
// Opens the files that the recipe names. Errors (kInput) name a file that is missing, or another one than was meant.
Result<Stage> make_stage(const StageRecipe& recipe);

// From model to workers in one step.
Result<std::vector<Worker>> make_workers(const ModelFile& model, const PipelineOptions& options);
Result<std::vector<Worker>> make_head_worker(const HeadFile& head, const PipelineOptions& options, int32_t guesses);

}  // namespace sluice

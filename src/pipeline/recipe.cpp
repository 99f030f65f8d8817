#include "pipeline/recipe.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/machine_memory.h"
#include "grammar/grammars.h"
#include "pipeline/cost_model.h"
#include "pipeline/ending.h"
#include "pipeline/lazy_runner.h"
#include "pipeline/stage_memory.h"

namespace sluice {

namespace {

// Tells the paths of one model from those of others: by all that is in its files, the type of its KV cache, where
// states are rounded, and the device if its bits are not everybody's.
Result<PathKey> paths_of(const ModelFile& model, const StageOptions& options) {
  SLUICE_TRY(const Sha256 files, model.identity());
  PathKey key = PathKey{}.with(static_cast<uint64_t>(options.kv));
  for (const int32_t layer : options.rounded) key = key.with(static_cast<uint64_t>(layer));
  if (options.device != kCpuDevice) {
    key = key.with(static_cast<uint64_t>(options.threads)).with(static_cast<uint64_t>(options.width_lock));
    for (const char c : options.device) key = key.with(static_cast<uint64_t>(c));
  }
  for (size_t i = 0; i < files.bytes.size(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, &files.bytes[i], sizeof word);
    key = key.with(word);
  }
  return key;
}

int32_t n_logits(const StageRecipe& recipe, const ModelFile& model) {
  const int32_t wanted = recipe.options.n_logits;
  return wanted > 0 ? std::min(wanted, model.n_logits()) : model.n_logits();
}

std::unique_ptr<Ending> ending_of(const StageRecipe& recipe, const ModelFile& model, std::shared_ptr<Memo> memo) {
  if (!recipe.last) return nullptr;
  if (recipe.candidates == 0) {
    const int32_t n = n_logits(recipe, model);
    return make_judge(n, constrain_by(model.vocabulary(), n), std::move(memo));
  }
  return make_guesser({.n_logits = n_logits(recipe, model),
                       .candidates = recipe.candidates,
                       .guessable = recipe.guessable,
                       .vocabulary = model.head_tokens()},
                      std::move(memo));
}

// What the runner does not check.
Status check(const StageRecipe& recipe) {
  constexpr int32_t kMostGuesses = 64;  // in a row
  using Kind = StageRecipe::Kind;
  const bool computes_nothing = recipe.kind == Kind::kNothing || recipe.kind == Kind::kZeros;
  const bool is_head = recipe.kind == Kind::kHead;  // whose output is perhaps its own
  const bool ends_well = !recipe.last || is_head || (recipe.options.with_head && !computes_nothing);
  const bool guesses_well = recipe.guesses >= 1 && recipe.guesses <= kMostGuesses;
  const bool not_negative = recipe.stage.valid() && recipe.candidates >= 0 && recipe.guessable >= 0;
  const bool narrow = recipe.options.max_rows <= kMostRows;
  if (ends_well && guesses_well && not_negative && narrow) return {};
  return input_error(recipe.files.path + ": a stage that ends a model needs its output head, it guesses 1 to " +
                     std::to_string(kMostGuesses) + " tokens in a row of at most " + std::to_string(kMostRows) +
                     " rows, and numbers of tokens are not negative");
}

// Whether what was opened is what was meant.
template <class File>
Status check_identity(const StageRecipe& recipe, const File& file) {
  if (recipe.files.identity == Sha256()) return {};
  SLUICE_TRY(const Sha256 found, file.identity());
  if (found == recipe.files.identity) return {};
  return input_error(recipe.files.path + ": another file than the pipeline's, which has the SHA-256 " +
                     recipe.files.identity.hex() + ": copy that one here");
}

}  // namespace

std::vector<StageRecipe> recipes_for(const ModelFile& model, const PipelineOptions& options) {
  const bool lazy = options.memo != nullptr, borrows = model.vocabulary_path() != model.path();
  SLUICE_CHECK(!lazy || options.stage.taps.empty(), "what is tapped is computed");
  const bool limited = options.guessable > 0 && model.head_tokens().empty();
  StageRecipe common{.files = {.path = model.path(), .target = borrows ? model.vocabulary_path() : ""},
                     .options = options.stage,
                     .candidates = options.candidates,
                     .guessable = options.guessable};
  common.options.taps.clear();
  common.options.n_logits = limited ? options.guessable : 0;
  common.options.foreign_tokens = options.candidates > 0;
  if (options.activations == Activations::kF16)
    for (size_t s = 1; s < options.cuts.size(); ++s) common.options.rounded.push_back(options.cuts[s].first);
  std::vector<StageRecipe> recipes(options.cuts.size(), common);
  for (size_t s = 0; s < recipes.size(); ++s) {
    StageRecipe& recipe = recipes[s];
    recipe.stage = StageId(static_cast<int32_t>(s));
    recipe.last = s + 1 == recipes.size();
    if (lazy && !options.stored) recipe.kind = recipe.last ? StageRecipe::Kind::kLazy : StageRecipe::Kind::kNothing;
    if (lazy && options.stored) recipe.kind = recipe.last ? StageRecipe::Kind::kStored : StageRecipe::Kind::kZeros;
    if (lazy) recipe.options.kept_behind = -1;  // an old row may be computed later
    recipe.options.range = lazy ? LayerRange{0, model.hparams().n_layers} : options.cuts[s];
    recipe.options.with_embedding = recipe.options.range.first == 0;
    if (!options.devices.empty()) recipe.options.device = options.devices[s];
    recipe.options.with_head = recipe.last;
    for (const int32_t layer : options.stage.taps)
      if (layer > 0 && stage_of_layer(options.cuts, layer) == recipe.stage.value) recipe.options.taps.push_back(layer);
  }
  return recipes;
}

StageRecipe recipe_for(const HeadFile& head, const PipelineOptions& options, int32_t guesses) {
  return {.stage = StageId(0),
          .kind = StageRecipe::Kind::kHead,
          .files = {.path = head.path(), .target = head.target_path()},
          .options = {.with_embedding = head.borrows_embedding(),
                      .with_head = head.borrows_output(),
                      .n_cells = options.stage.n_cells,
                      .max_rows = options.stage.max_rows,
                      .threads = options.stage.threads},
          .candidates = options.candidates,
          .guessable = options.guessable,
          .guesses = guesses};
}

Result<Worker> make_worker(const StageRecipe& recipe, const ModelFile& model, std::shared_ptr<Memo> memo) {
  using Kind = StageRecipe::Kind;
  SLUICE_TRY_STATUS(check(recipe));
  const int32_t d_model = model.hparams().d_model;
  std::unique_ptr<Computation> computation;
  switch (recipe.kind) {
    case Kind::kNothing:
      computation = nothing(0);
      break;
    case Kind::kLayers: {
      SLUICE_TRY(auto runner, make_stage_runner(model, recipe.options));
      computation = layers_of(std::move(runner), recipe.stage, model.hparams());
      break;
    }
    case Kind::kZeros:
      computation = nothing(d_model);
      break;
    case Kind::kStored:
    case Kind::kLazy: {
      SLUICE_TRY(auto runner, make_stage_runner(model, recipe.options));
      SLUICE_TRY(const PathKey key, paths_of(model, recipe.options));
      computation = std::make_unique<LazyRunner>(std::move(runner), key, d_model);
      if (memo == nullptr) memo = std::make_shared<Memo>();
      break;
    }
    case Kind::kHead:
      return input_error(recipe.files.path + ": the recipe of a head, for a model");
  }
  return Worker(recipe.stage, std::move(computation), ending_of(recipe, model, std::move(memo)));
}

Result<Worker> make_worker(const StageRecipe& recipe, const HeadFile& head) {
  SLUICE_TRY_STATUS(check(recipe));
  if (recipe.options.n_cells < 1 || recipe.options.threads < 1)
    return input_error(recipe.files.path + ": cells and threads of a head must be at least 1");
  SLUICE_TRY(auto module, HeadModule::create(head, {.n_cells = recipe.options.n_cells,
                                                    .threads = recipe.options.threads,
                                                    .guesses = recipe.guesses}));
  const HeadParameters& parameters = head.parameters();
  return Worker(recipe.stage, head_of(std::move(module)),
                make_guesser({.n_logits = parameters.n_guessable(),
                              .candidates = recipe.candidates,
                              .guessable = recipe.guessable,
                              .vocabulary = parameters.vocabulary},
                             nullptr));
}

namespace {

template <class File, class... Memos>
Result<Stage> make_stage_of(const StageRecipe& recipe, const File& file, Memos... memo) {
  SLUICE_TRY_STATUS(check_identity(recipe, file));
  SLUICE_TRY(Worker worker, make_worker(recipe, file, std::move(memo)...));
  return Stage{std::move(worker), FrameCheck(StageLimits::of(recipe, file))};
}

}  // namespace

Result<Stage> make_stage(const StageRecipe& recipe, const ModelFile& model, std::shared_ptr<Memo> memo) {
  return make_stage_of(recipe, model, std::move(memo));
}

Result<Stage> make_stage(const StageRecipe& recipe, const HeadFile& head) { return make_stage_of(recipe, head); }

Result<Stage> make_stage(const StageRecipe& recipe) {
  const std::string &path = recipe.files.path, &target_path = recipe.files.target;
  if (target_path.empty()) {
    SLUICE_TRY(const ModelFile model, ModelFile::open(path));
    return make_stage_of(recipe, model);
  }
  SLUICE_TRY(const ModelFile target, ModelFile::open(target_path));
  if (recipe.kind == StageRecipe::Kind::kHead) {
    SLUICE_TRY(const HeadFile head, HeadFile::open(path, target));
    return make_stage_of(recipe, head);
  }
  SLUICE_TRY(const ModelFile draft, ModelFile::open_draft(path, target));
  return make_stage_of(recipe, draft);
}

Result<std::vector<Worker>> make_workers(const ModelFile& model, const PipelineOptions& options) {
  std::vector<Worker> workers;
  std::vector<StageRecipe> recipes = recipes_for(model, options);
  fit_types(recipes, model, options.memory > 0 ? options.memory : machine_memory());
  if (options.memory > 0) SLUICE_TRY_STATUS(fit_experts(recipes, model, options.memory));
  for (const StageRecipe& recipe : recipes) {
    SLUICE_TRY(Worker worker, make_worker(recipe, model, options.memo));
    if (options.journal > 0) worker.keep_journal(options.journal);
    workers.push_back(std::move(worker));
  }
  return workers;
}

Result<std::vector<Worker>> make_head_worker(const HeadFile& head, const PipelineOptions& options, int32_t guesses) {
  SLUICE_TRY(Worker worker, make_worker(recipe_for(head, options, guesses), head));
  std::vector<Worker> workers;
  workers.push_back(std::move(worker));
  return workers;
}

}  // namespace sluice

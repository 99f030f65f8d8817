// What a held stage, or head, is made of: files that are here or are fetched, and memory.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "compute/packed_size.h"
#include "pipeline/stage_memory.h"
#include "transport/held_stage.h"
#include "transport/weights.h"

namespace sluice {

namespace {

constexpr const char* kOrFetch = ", or start it without --no-fetch";

// What the last stage of a model draws from whose answers are stored; else null.
Result<std::shared_ptr<Memo>> open_memo(const StageRecipe& recipe, const std::string& file) {
  if (recipe.kind != StageRecipe::Kind::kStored) return nullptr;
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error))
    return input_error("it has no memo " + file + ": copy the coordinator's there");
  auto memo = std::make_shared<Memo>();
  SLUICE_TRY_STATUS(memo->load(file));
  return memo;
}

}  // namespace

Result<MadeStage> HeldStage::made_of(const StageRecipe& recipe, const std::string& memo_file) {
  if (recipe.kind == StageRecipe::Kind::kHead) return made_head(recipe);
  SLUICE_TRY(const ModelFile model, model_of(recipe));
  const LayerRange range = recipe.options.range;
  if (range.first < 0 || range.first > range.last || range.last > model.hparams().n_layers ||
      recipe.options.n_cells < 1)
    return runtime_error("it was sent a recipe of layers that the model does not have");
  SLUICE_TRY(const StageRecipe fitting, set_aside_for(recipe, model));
  SLUICE_TRY(auto memo, open_memo(recipe, memo_file));
  SLUICE_TRY(Stage stage, make_stage(fitting, model, std::move(memo)));
  return MadeStage{.recipe = recipe,
                   .stage = std::move(stage),
                   .bytes = bytes_,
                   .what = "layers " + std::to_string(range.first) + " to " + std::to_string(range.last - 1) + " of " +
                           model.hparams().name,
                   .d_model = model.hparams().d_model,
                   .in_use = std::move(in_use_)};
}

// As small as its types can be packed where it doesn't fit otherwise; then, where not all of its experts fit, a part of
// them, as large as can be.
Result<StageRecipe> HeldStage::set_aside_for(const StageRecipe& recipe, const ModelFile& model) {
  constexpr int64_t kParts = 16;
  Status whole = set_aside(bytes_of_stage(recipe, model));
  if (!whole && recipe.options.device == kCpuDevice && make_compact(model)) {
    means_.say(what_ + ": its weights are kept as small as in the file (--compact)");
    whole = set_aside(bytes_of_stage(recipe, model));
  }
  if (whole) return recipe;
  StageRecipe fitting = recipe;
  const int64_t experts = expert_bytes(model, recipe.options.range);
  for (int64_t part = kParts - 1; part > 0; --part) {
    fitting.options.expert_memory = experts * part / kParts;
    if (fitting.options.expert_memory <= expert_bytes_of_layer(model, recipe.options.range)) break;
    const int64_t more = std::max<int64_t>(bytes_of_stage(fitting, model) - bytes_, 0);
    if (!means_.reserve_if_free(more)) continue;
    bytes_ += more;
    means_.say(what_ + ": there is room for " + std::to_string(100 * part / kParts) + " % of its experts");
    return fitting;
  }
  return tl::unexpected(whole.error());
}

Result<MadeStage> HeldStage::made_head(const StageRecipe& recipe) {
  if (recipe.options.range.first != 0 || recipe.options.range.last != 0)
    return runtime_error("it was sent a recipe of a head with layers of the model");
  SLUICE_TRY(const ModelFile target, model_of(recipe));
  SLUICE_TRY(const HeadFile head, head_of(recipe, target));
  SLUICE_TRY_STATUS(set_aside(bytes_of_stage(recipe, head, target)));
  SLUICE_TRY(Stage stage, make_stage(recipe, head));
  return MadeStage{.recipe = recipe,
                   .stage = std::move(stage),
                   .bytes = bytes_,
                   .what = std::string("the ") + name(head.parameters().kind) + " head of " + target.hparams().name,
                   .d_model = target.hparams().d_model,
                   .in_use = std::move(in_use_)};
}

// Found here, or else fetched.
Result<ModelFile> HeldStage::model_of(const StageRecipe& recipe) {
  auto found = find_model(model_files(recipe), means_.models);
  if (found) return found;
  if (means_.cache.folder.empty()) return input_error(found.error().message + kOrFetch);
  auto fetched = fetch_model(recipe, fetch_means());
  if (!fetched) return tl::unexpected<Error>(fetched.error());
  in_use_.push_back(std::move(fetched->in_use));
  return std::move(fetched->model);
}

Result<HeadFile> HeldStage::head_of(const StageRecipe& recipe, const ModelFile& target) {
  auto found = find_head(recipe.files, target, means_.models);
  if (found) return found;
  if (means_.cache.folder.empty()) return input_error(found.error().message + kOrFetch);
  auto fetched = fetch_head(recipe, target, fetch_means());
  if (!fetched) return tl::unexpected<Error>(fetched.error());
  in_use_.push_back(std::move(fetched->in_use));
  return std::move(fetched->head);
}

FetchMeans HeldStage::fetch_means() {
  return {.cache = means_.cache,
          .coordinator = control_.get(),
          .next = [this] { return from_coordinator_.pop(); },
          .reserve = [this](int64_t bytes) { return set_aside(bytes); },
          .say = [this](const std::string& what) { means_.say(what_ + ": " + what); },
          .ended = [this] { return ended_.load(); }};
}

// It is of less use than stages that are kept for who may come back.
void HeldStage::keep_journal() {
  const StageOptions& options = made_->recipe.options;
  const int64_t most = made_->recipe.last ? 0 : Journal::bytes_of(options.n_cells, made_->d_model);
  const int64_t bytes = std::min(means_.journal, most);
  const bool computes = made_->recipe.kind == StageRecipe::Kind::kLayers;
  if (!computes || means_.journal == 0 || !means_.reserve_if_free(bytes)) return;
  bytes_ += bytes;
  made_->stage.worker.keep_journal(bytes);
}

}  // namespace sluice

#include "pipeline/stage_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "compute/attention.h"
#include "compute/folded_states.h"
#include "compute/packed_size.h"
#include "model/tensor_table.h"

namespace sluice {

namespace {

constexpr int64_t kBookkeeping = 64;  // of a stage: the cell's parent, position and place in paths

uint64_t bytes_of(const ModelFile& model, const char* name) {
  for (const ModelFile::TensorSummary& tensor : model.tensors())
    if (tensor.name == name) return tensor.bytes;
  return 0;
}

}  // namespace

int64_t bytes_of_cell(const HyperParameters& h, KvType kv, LayerRange stage) {
  int64_t values = 0;
  for (int32_t layer = stage.first; layer < stage.last; ++layer) values += h.values_of_cell(layer);
  return kv_bytes(kv, values) + kBookkeeping;
}

WindowMemory window_memory(const HyperParameters& h, KvType kv, LayerRange stage, int64_t cells, int64_t guesses) {
  const int64_t kept = h.window + kKeptBehind + guesses;
  if (h.window == 0 || cells <= kept) return {};
  int64_t values = 0;
  for (int32_t layer = stage.first; layer < stage.last; ++layer)
    if (h.window_of(layer) > 0) values += h.values_of_cell(layer);
  return {.bytes_of_cell = kv_bytes(kv, values), .cells = kept};
}

int64_t bytes_of_cell(const HyperParameters& h, KvType kv, int32_t n_stages) {
  return bytes_of_cell(h, kv, {0, h.n_layers}) + (n_stages - 1) * kBookkeeping;
}

int64_t folded_bytes(const HyperParameters& h, LayerRange stage) {
  constexpr int64_t kSequences = 4;
  int64_t n = 0;
  for (int32_t layer = stage.first; layer < stage.last; ++layer) n += h.delta.is_in(layer) ? 1 : 0;
  return n * (kSequences * FoldedStates::state_bytes(h.delta) + kMostRows * FoldedStates::update_bytes(h.delta));
}

int64_t folded_bytes(const HyperParameters& h) { return folded_bytes(h, {0, h.n_layers}); }

namespace {

// With all experts.
int64_t bytes_of_matrices(const StageOptions& options, const ModelFile& model) {
  uint64_t weights = 0;
  for (int32_t l = options.range.first; l < options.range.last; ++l) weights += model.layer_bytes(l);
  if (options.with_head) weights += model.head_bytes();
  if (options.device == kCpuDevice)
    weights = static_cast<uint64_t>(static_cast<double>(weights) * packed_growth(model));
  return static_cast<int64_t>(weights);
}

// Embeddings, cells and states.
int64_t bytes_of_rest(const StageOptions& options, const ModelFile& model) {
  uint64_t weights = 0;
  const HyperParameters& h = model.hparams();
  // With embeddings for each layer a stage reads the first one too, and of the others its part.
  const bool embeds = options.with_embedding || (h.d_per_layer > 0 && options.range.count() > 0);
  if (embeds && !(options.with_head && model.tied_head())) weights += bytes_of(model, kTokenEmbedding);
  if (h.d_per_layer > 0)
    weights += bytes_of(model, kPerLayerEmbedding) * static_cast<uint64_t>(options.range.count()) /
               static_cast<uint64_t>(h.n_layers);
  return static_cast<int64_t>(weights) + options.n_cells * bytes_of_cell(h, options.kv, options.range) +
         folded_bytes(h, options.range);
}

}  // namespace

int64_t bytes_of_stage(const StageRecipe& recipe, const ModelFile& model) {
  const StageOptions& options = recipe.options;
  if (recipe.kind == StageRecipe::Kind::kNothing) return 0;
  if (recipe.kind == StageRecipe::Kind::kZeros) return options.n_cells * kBookkeeping;
  int64_t in_file = 0;
  if (options.device == kCpuDevice && options.expert_memory > 0)
    in_file = std::max<int64_t>(expert_bytes(model, options.range) - options.expert_memory, 0);
  return bytes_of_matrices(options, model) - in_file + bytes_of_rest(options, model);
}

int64_t least_bytes_of_stage(const StageRecipe& recipe, const ModelFile& model) {
  const StageOptions& options = recipe.options;
  const int64_t all = bytes_of_stage(recipe, model);
  if (options.device != kCpuDevice || recipe.kind != StageRecipe::Kind::kLayers) return all;
  const int64_t waiting = expert_bytes(model, options.range) - expert_bytes_of_layer(model, options.range);
  const auto matrices = static_cast<double>(bytes_of_matrices(options, model) - waiting);
  const auto as_in_file = static_cast<int64_t>(matrices / std::max(1.0, packed_growth(model)));
  return std::min(all, as_in_file + bytes_of_rest(options, model));
}

void fit_types(const std::vector<StageRecipe>& stages, const ModelFile& model, int64_t bytes) {
  int64_t all = 0;
  for (const StageRecipe& stage : stages) all += bytes_of_stage(stage, model);
  if (all > bytes) make_compact(model);
}

Status fit_experts(std::vector<StageRecipe>& stages, const ModelFile& model, int64_t bytes) {
  const auto gib = [](int64_t n) { return fmt::format("{:.2f} GiB", static_cast<double>(n) / (1 << 30)); };
  int64_t all = 0, experts = 0;
  for (const StageRecipe& stage : stages) {
    all += bytes_of_stage(stage, model);
    if (stage.options.device == kCpuDevice) experts += expert_bytes(model, stage.options.range);
  }
  if (all <= bytes) return {};
  const int64_t rest = all - experts;
  // What every stage can do with: its largest layer's experts, all of which a batch may need.
  double part = 0.0;
  for (const StageRecipe& stage : stages)
    if (const int64_t own = expert_bytes(model, stage.options.range); own > 0)
      part = std::max(
          part, static_cast<double>(expert_bytes_of_layer(model, stage.options.range)) / static_cast<double>(own));
  const int64_t least = rest + static_cast<int64_t>(part * static_cast<double>(experts));
  if (experts == 0 || bytes < least)
    return input_error(model.path() + ": --memory: the model needs " + gib(all) +
                       (experts == 0 ? std::string(" with its cells; it has no experts that could wait in the file")
                                     : ", and " + gib(least) + " at the least, with a part of its experts"));
  const double share = static_cast<double>(bytes - rest) / static_cast<double>(experts);
  for (StageRecipe& stage : stages) {
    const auto own = static_cast<double>(expert_bytes(model, stage.options.range));
    if (own > 0 && stage.options.device == kCpuDevice)
      stage.options.expert_memory = std::max<int64_t>(1, static_cast<int64_t>(share * own));
  }
  return {};
}

// Its layers keep f32.
int64_t bytes_of_stage(const StageRecipe& recipe, const HeadFile& head, const ModelFile& target) {
  const int64_t own = recipe.options.n_cells * bytes_of_cell(head.parameters().hparams, KvType::kF32);
  StageRecipe lent = recipe;
  lent.options.n_cells = 0;
  return static_cast<int64_t>(head.file_bytes()) + own + bytes_of_stage(lent, target);
}

}  // namespace sluice

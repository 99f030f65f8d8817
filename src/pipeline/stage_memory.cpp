#include "pipeline/stage_memory.h"

#include "base/half.h"
#include "compute/folded_states.h"
#include "compute/packed_size.h"
#include "model/tensor_table.h"

namespace sluice {

namespace {

uint64_t embedding_bytes(const ModelFile& model) {
  for (const ModelFile::TensorSummary& tensor : model.tensors())
    if (tensor.name == kTokenEmbedding) return tensor.bytes;
  return 0;
}

}  // namespace

int64_t bytes_of_cell(const HyperParameters& h, KvType kv, int32_t n_stages) {
  constexpr int64_t kBookkeeping = 64;  // of a stage: the cell's parent, position and place in paths
  return h.n_cell_layers() * h.values_of_cell() *
             static_cast<int64_t>(kv == KvType::kF32 ? sizeof(float) : sizeof(Half)) +
         n_stages * kBookkeeping;
}

int64_t folded_bytes(const HyperParameters& h) {
  constexpr int64_t kSequences = 4;
  return (h.n_layers - h.n_cell_layers()) *
         (kSequences * FoldedStates::state_bytes(h.delta) + kMostRows * FoldedStates::update_bytes(h.delta));
}

int64_t bytes_of_stage(const StageRecipe& recipe, const ModelFile& model) {
  if (recipe.kind == StageRecipe::Kind::kNothing || recipe.kind == StageRecipe::Kind::kZeros) return 0;
  const StageOptions& options = recipe.options;
  uint64_t weights = 0;
  for (int32_t l = options.range.first; l < options.range.last; ++l) weights += model.layer_bytes(l);
  if (options.with_head) weights += model.head_bytes();
  if (options.device == kCpuDevice)
    weights = static_cast<uint64_t>(static_cast<double>(weights) * packed_growth(model));
  if (options.with_embedding && !(options.with_head && model.tied_head())) weights += embedding_bytes(model);
  HyperParameters layers = model.hparams();
  layers.n_layers = options.range.count();
  if (layers.folds()) {
    const auto first = layers.delta.layers.begin() + options.range.first;
    layers.delta.layers = std::vector(first, first + layers.n_layers);
  }
  return static_cast<int64_t>(weights) + options.n_cells * bytes_of_cell(layers, options.kv) + folded_bytes(layers);
}

// Its layers keep f32.
int64_t bytes_of_stage(const StageRecipe& recipe, const HeadFile& head, const ModelFile& target) {
  const int64_t own = recipe.options.n_cells * bytes_of_cell(head.parameters().hparams, KvType::kF32);
  StageRecipe lent = recipe;
  lent.options.n_cells = 0;
  return static_cast<int64_t>(head.file_bytes()) + own + bytes_of_stage(lent, target);
}

}  // namespace sluice

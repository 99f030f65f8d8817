// What stages hold in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "model/head_file.h"
#include "model/model_file.h"
#include "wire/recipe.h"

namespace sluice {

// Bytes of a token's keys and values in all layers of a model, with what a stage keeps of the cell besides; or in those
// of one stage.
int64_t bytes_of_cell(const HyperParameters& hparams, KvType kv, int32_t n_stages = 1);
int64_t bytes_of_cell(const HyperParameters& hparams, KvType kv, LayerRange stage);

// What layers with a window hold of one text of so many cells: bytes of a cell in all of them, and how many cells, when
// `guesses` cells at the most are not committed. Nothing if they hold all of it.
struct WindowMemory {
  int64_t bytes_of_cell = 0, cells = 0;
  int64_t bytes() const { return bytes_of_cell * cells; }
};
WindowMemory window_memory(const HyperParameters& hparams, KvType kv, LayerRange stage, int64_t cells, int64_t guesses);

// Bytes of what layers without attention hold of a few sequences, and of the nodes of a batch: of all, or of a stage's.
int64_t folded_bytes(const HyperParameters& hparams);
int64_t folded_bytes(const HyperParameters& hparams, LayerRange stage);

// Types that can be packed smaller are, from now on, where stages of one model need more than so many bytes otherwise
// (make_compact).
void fit_types(const std::vector<StageRecipe>& stages, const ModelFile& model, int64_t bytes);

// Stages of one model keep as many of their experts packed as fit into so many bytes beside all else, in equal parts
// (StageOptions::expert_memory). The error (kInput) says how many are needed.
Status fit_experts(std::vector<StageRecipe>& stages, const ModelFile& model, int64_t bytes);

// Bytes of a stage when all of its cells are full: weights, keys and values. Of layers with windows too: many short
// texts fill theirs.
int64_t bytes_of_stage(const StageRecipe& recipe, const ModelFile& model);
// The same of one whose matrices are as small as in the file, and that keeps the experts of a layer: with less it can't
// do, with that perhaps.
int64_t least_bytes_of_stage(const StageRecipe& recipe, const ModelFile& model);
// Of a head, with what it borrows. REQUIRES: it was opened with its target, which is `target`.
int64_t bytes_of_stage(const StageRecipe& recipe, const HeadFile& head, const ModelFile& target);

}  // namespace sluice

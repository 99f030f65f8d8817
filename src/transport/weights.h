// The model or head of a recipe on this host, wherever it is here.
#pragma once

#include <string>

#include "base/result.h"
#include "model/head_file.h"
#include "model/model_file.h"
#include "wire/recipe.h"

namespace sluice {

// Of the model whose weights a stage of this recipe maps: a head's target.
WeightFiles model_files(const StageRecipe& recipe);

// By the path that the coordinator knows it under, by its file's name in the folder `models`, or by its identity among
// all GGUF files there: its identity must be the recipe's. models: empty if there is none. Errors (kInput) say what to
// copy where.
Result<ModelFile> find_model(const WeightFiles& files, const std::string& models);
// Likewise. target: the head's, which outlives it.
Result<HeadFile> find_head(const WeightFiles& files, const ModelFile& target, const std::string& models);

}  // namespace sluice

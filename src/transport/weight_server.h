// A model's weights for stages that do not have them, from the coordinator's side.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "model/model_file.h"
#include "wire/recipe.h"
#include "wire/weights.h"

namespace sluice {

// Thread safety: none. The model outlives it.
class WeightServer {
 public:
  explicit WeightServer(const ModelFile& model) : model_(model), files_(model.files()) {}

  // What a stage of this recipe needs. Reads all of it where that is not known from before. Errors name the file: it
  // has changed since it was opened, or cannot be read.
  Result<WeightsOffered> offer(const StageRecipe& recipe) const;
  // Errors: likewise, or there is no such block.
  Result<WeightBlock> block(StageId stage, const WeightBlockAsked& asked);

  // Blocks, of all stages that have asked for some so far.
  uint64_t sent() const { return sent_; }
  uint64_t wanted() const;

 private:
  const ModelFile& model_;
  const std::vector<std::shared_ptr<const OpenFile>> files_;
  uint64_t sent_ = 0;
  std::map<StageId, uint32_t> left_;
};

// The blocks that hold what a stage of these layers reads, of each of the model's files, rising.
std::vector<std::vector<uint32_t>> blocks_of_stage(const ModelFile& model, const StageOptions& options);

}  // namespace sluice

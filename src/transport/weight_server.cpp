#include "transport/weight_server.h"

#include <algorithm>
#include <set>
#include <span>

#include "model/block_hashes.h"
#include "pipeline/stage_memory.h"

namespace sluice {

std::vector<std::vector<uint32_t>> blocks_of_stage(const ModelFile& model, const StageOptions& options) {
  std::vector<std::set<uint32_t>> blocks(model.files().size());
  for (const auto& [file, begin, end] : model.ranges(options.range, options.with_embedding, options.with_head))
    for (uint64_t block = begin / kWeightBlockBytes; block * kWeightBlockBytes < end; ++block)
      blocks[file].insert(static_cast<uint32_t>(block));
  std::vector<std::vector<uint32_t>> lists;
  for (const auto& of_file : blocks) lists.emplace_back(of_file.begin(), of_file.end());
  return lists;
}

Result<WeightsOffered> WeightServer::offer(const StageRecipe& recipe) const {
  WeightsOffered offered{.files = {}, .memory = static_cast<uint64_t>(bytes_of_stage(recipe, model_))};
  const auto blocks = blocks_of_stage(model_, recipe.options);
  for (size_t i = 0; i < files_.size(); ++i) {
    SLUICE_TRY(auto hashes, hashes_of_blocks(*files_[i], kWeightBlockBytes, blocks[i]));
    offered.files.push_back({.bytes = files_[i]->size(), .blocks = blocks[i], .hashes = std::move(hashes)});
  }
  return offered;
}

Result<WeightBlock> WeightServer::block(StageId stage, const WeightBlockAsked& asked) {
  const uint64_t bytes =
      asked.file < files_.size() ? bytes_of_block(files_[asked.file]->size(), kWeightBlockBytes, asked.block) : 0;
  if (bytes == 0) return runtime_error("it asks for weights that the model does not have");
  WeightBlock block{.file = asked.file, .block = asked.block, .bytes = std::vector<uint8_t>(bytes)};
  SLUICE_TRY_STATUS(
      files_[asked.file]->read(asked.block * kWeightBlockBytes, std::as_writable_bytes(std::span(block.bytes))));
  ++sent_;
  left_[stage] = asked.left - std::min(asked.left, 1U);
  return block;
}

uint64_t WeightServer::wanted() const {
  uint64_t wanted = sent_;
  for (const auto& [stage, left] : left_) wanted += left;
  return wanted;
}

}  // namespace sluice

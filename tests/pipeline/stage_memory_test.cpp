#include "pipeline/stage_memory.h"

#include <gtest/gtest.h>

#include <numeric>

#include "compute/kernels/pack.h"
#include "compute/packed_size.h"
#include "pipeline/recipe.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

ModelFile open(const TinyModelSpec& spec) {
  return ModelFile::open(write_tiny_model(spec, temp_path("memory.gguf"))).value();
}

std::vector<StageRecipe> two_stages(const ModelFile& model) {
  return recipes_for(model, {.cuts = {{0, 1}, {1, 4}}, .stage = {.n_cells = 100}});
}

int64_t bytes_of(const std::vector<StageRecipe>& stages, const ModelFile& model) {
  return std::accumulate(stages.begin(), stages.end(), int64_t{0},
                         [&](int64_t sum, const StageRecipe& stage) { return sum + bytes_of_stage(stage, model); });
}

// With a dense layer in front, as glm4moe has.
TEST(StageMemory, ExpertsGetWhatIsLeftInEqualParts) {
  const ModelFile model = open(with_experts({}, "glm4moe"));
  const int64_t experts = expert_bytes(model, {0, 4}), of_layer = expert_bytes_of_layer(model, {1, 4});
  EXPECT_EQ(expert_bytes(model, {0, 1}), 0);
  EXPECT_EQ(experts, 3 * of_layer);
  std::vector<StageRecipe> stages = two_stages(model);
  const int64_t all = bytes_of(stages, model);
  ASSERT_TRUE(fit_experts(stages, model, all));
  EXPECT_EQ(stages[1].options.expert_memory, 0) << "all of them";
  ASSERT_TRUE(fit_experts(stages, model, all - experts / 2));
  EXPECT_EQ(stages[0].options.expert_memory, 0) << "it has none";
  EXPECT_NEAR(static_cast<double>(stages[1].options.expert_memory), static_cast<double>(experts) / 2, 2);
  EXPECT_NEAR(static_cast<double>(bytes_of(stages, model)), static_cast<double>(all - experts / 2), 2);
}

TEST(StageMemory, TypesWithGridsKeepIndicesWhereTheyDontFitOtherwise) {
  TinyModelSpec spec{.n_layers = 4, .d_model = 256, .n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .d_ff = 512};
  spec.type = GGML_TYPE_IQ3_S;
  const ModelFile model = open(spec);
  const std::vector<StageRecipe> stages = two_stages(model);
  const int64_t all = bytes_of(stages, model);
  fit_types(stages, model, all);
  EXPECT_FALSE(kernels::indices_are_kept());
  fit_types(stages, model, all - 1);
  EXPECT_TRUE(kernels::indices_are_kept());
  EXPECT_LT(bytes_of(stages, model), all);
  kernels::keep_indices(false);
}

TEST(StageMemory, WithoutRoomForALayersExpertsItSaysHowMuchItTakes) {
  const ModelFile model = open(with_experts({}, "qwen3moe")), dense = open({});
  std::vector<StageRecipe> stages = two_stages(model), of_dense = two_stages(dense);
  const Status tight = fit_experts(stages, model, bytes_of(stages, model) / 8);
  ASSERT_FALSE(tight);
  EXPECT_NE(tight.error().message.find("memory.gguf: --memory: the model needs"), std::string::npos);
  EXPECT_NE(tight.error().message.find("at the least, with a part of its experts"), std::string::npos);
  const Status none = fit_experts(of_dense, dense, 1000);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("it has no experts that could wait in the file"), std::string::npos);
}

// Two of gemma3's three layers have a window, of 24.
TEST(StageMemory, OfOneLongTextLayersWithAWindowHoldItsEndAlone) {
  const ModelFile model = open(of_family({.n_layers = 3}, "gemma3"));
  const HyperParameters& h = model.hparams();
  const int64_t cells = 10000, kept = 24 + kKeptBehind + 300;
  const auto windows = window_memory(h, KvType::kF16, {0, 3}, cells, 300);
  EXPECT_EQ(windows.bytes_of_cell, 2 * 2 * h.values_of_cell(0));
  EXPECT_EQ(windows.cells, kept);
  EXPECT_EQ(window_memory(h, KvType::kQ8_0, {0, 3}, cells, 300).bytes_of_cell, 17 * windows.bytes_of_cell / 32);
  EXPECT_EQ(window_memory(h, KvType::kF16, {0, 3}, kept, 300).bytes(), 0) << "all of a short one";
  EXPECT_EQ(window_memory(open({}).hparams(), KvType::kF16, {0, 4}, cells, 300).bytes(), 0);
}

}  // namespace
}  // namespace sluice::test

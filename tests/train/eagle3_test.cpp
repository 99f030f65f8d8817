#include "train/eagle3.h"

#include <gtest/gtest.h>
#include <llama.h>

#include "train/heads.h"

namespace sluice::test {
namespace {

constexpr int32_t kTokens = 11;

class Eagle3Test : public testing::Test {
 protected:
  const Opened& opened_ = six_layers();
  TargetTensors target_ = tensors_of(opened_);
  LayerShape shape_ = layer_shape(opened_.model.hparams());
  std::unique_ptr<MadeUp> made_ = make_up(opened_.model.hparams(), kTokens, 4);

  // Drafting as an engine does it: rows of the context up to P, then one row a guess, which takes the token that was
  // said and the state before it. Gives the state of the last row.
  torch::Tensor drafted(Eagle3& head, int64_t position, int64_t steps) {
    const Parameters& p = head.parameters();
    const auto embedding =
        to_tensor(target_.floats("token_embd.weight"), {opened_.model.hparams().n_vocab, shape_.d_model});
    const auto features = head.fused(head.features(made_->captured));
    std::vector<torch::Tensor> inputs;
    torch::Tensor state;
    for (int64_t row = 0; row <= position + steps; ++row) {
      const auto hidden = row <= position ? features[row] : state;
      const auto token = made_->example.tokens[static_cast<size_t>(row) + 1];
      inputs.push_back(torch::cat({rms_norm(embedding[token], p["blk.0.attn_norm.weight"], shape_.epsilon),
                                   rms_norm(hidden, p["blk.0.attn_norm_2.weight"], shape_.epsilon)}));
      const auto x = torch::stack(inputs);
      const auto at = torch::arange(row + 1, torch::kLong);
      const auto q = turn(heads(x, p["blk.0.attn_q.weight"], shape_.n_heads), at, shape_);
      const auto k = turn(heads(x, p["blk.0.attn_k.weight"], shape_.n_kv_heads), at, shape_);
      const auto v = heads(x, p["blk.0.attn_v.weight"], shape_.n_kv_heads);
      const auto attended = attention(q.slice(0, row), k, v, torch::zeros({1, row + 1}))[0];
      state = add_feed_forward(hidden + product(attended, p["blk.0.attn_output.weight"]), p, "blk.0.", shape_);
    }
    return state;
  }
};

TEST_F(Eagle3Test, TheTrainingTimeTestIsWhatDraftingDoes) {
  const torch::NoGradGuard frozen;
  for (const Init init : {Init::kRandom, Init::kLast}) {
    Eagle3 head(opened_.model, target_, {.taps = {1, 3, 5}, .init = init}, first_tokens(20));
    for (const int64_t first : {0, 3}) {
      const auto steps = head.unroll(head.features(made_->captured), made_->example.tokens, first, 4);
      ASSERT_EQ(steps.size(), 4u);
      for (int64_t j = 0; j < 4; ++j) {
        ASSERT_EQ(steps[static_cast<size_t>(j)].state.size(0), kTokens - 1 - j - first);
        for (int64_t position = first; position < kTokens - 1 - j; ++position)
          EXPECT_LT(distance(steps[static_cast<size_t>(j)].state[position - first], drafted(head, position, j)), 2e-4)
              << static_cast<int>(init) << " position " << position << " step " << j;
      }
    }
  }
}

TEST_F(Eagle3Test, TheFittedBeginningGuessesWhatTheLastLayerTakes) {
  Eagle3 head(opened_.model, target_, {.taps = {1, 3, 5}}, first_tokens(20));
  const auto made = make_up(opened_.model.hparams(), 400, 4);
  // Layer 5 is both a tap and the goal, so the fit can be nearly exact.
  head.begin([&](size_t) { return made->captured; }, 1);
  const torch::NoGradGuard frozen;
  const auto fused = rms_norm(head.fused(head.features(made->captured)), 1e-6).slice(0, 10);
  const auto goal = rms_norm(to_tensor(made->captured.layer(5), {400, shape_.d_model}), 1e-6).slice(0, 10);
  EXPECT_GT((fused * goal).mean().item<double>(), 0.98);
}

TEST_F(Eagle3Test, LlamaCppLoadsTheExportedHead) {
  Eagle3 head(opened_.model, target_, {.taps = {1, 3, 5}}, first_tokens(20));
  GgufWriter file;
  ASSERT_TRUE(head.write(file, {GGML_TYPE_F16}));
  const std::string path = temp_path("eagle3.gguf");
  ASSERT_TRUE(file.write(path));
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model* model = llama_model_load_from_file(path.c_str(), llama_model_default_params());
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(llama_model_n_embd(model), shape_.d_model);
  llama_model_free(model);
}

TEST(ChainEvaluation, CountsWhatVerificationsYield) {
  ChainEvaluation chains(2);
  // First guesses: right, wrong, right, right; second ones: wrong, right, right.
  chains.add({{true, false, true, true}, {false, true, true}});
  const auto summary = chains.summary();
  // One drafted token: 2 (tokens 0, 1), then 2 (tokens 2, 3).
  EXPECT_DOUBLE_EQ(summary["accepted_length"][0], 2.0);
  // Two: at 0 one is accepted, so two tokens; at 2 two more, where the text ends.
  EXPECT_DOUBLE_EQ(summary["accepted_length"][1], 2.0);
  EXPECT_DOUBLE_EQ(summary["top1_by_depth"][0], 0.75);
  EXPECT_DOUBLE_EQ(summary["top1_by_depth"][1], 0.5);  // reached at 0 and 2
}

}  // namespace
}  // namespace sluice::test

#include "train/p_eagle.h"

#include <gtest/gtest.h>

#include "train/heads.h"

namespace sluice::test {
namespace {

constexpr int32_t kTokens = 40, kPrompt = 12;

class PEagleTest : public testing::Test {
 protected:
  const Opened& opened_ = six_layers();
  TargetTensors target_ = tensors_of(opened_);
  LayerShape shape_ = layer_shape(opened_.model.hparams());
  std::unique_ptr<MadeUp> made_ = make_up(opened_.model.hparams(), kTokens, kPrompt);

  std::unique_ptr<PEagle> head(PEagleOptions options) {
    torch::manual_seed(4);
    options.taps = {1, 3, 5};
    options.groups = 5;
    auto made = std::make_unique<PEagle>(opened_.model.hparams(), target_, options, first_tokens(30));
    torch::NoGradGuard frozen;
    auto hidden = made->parameters()["mask_hidden"];
    hidden.copy_(torch::randn(hidden.sizes()));
    return made;
  }
};

TEST_F(PEagleTest, PartitionedGradientsEqualTheUnpartitioned) {
  for (const MaskedState hidden : {MaskedState::kShared, MaskedState::kByDepth}) {
    const auto whole = head({.layers = 2, .segments = 1, .hidden = hidden, .train_embedding = true});
    const auto one = whole->accumulate(made_->captured, 7, 0.01);
    for (const int32_t segments : {2, 3, 5}) {
      const auto parts = head({.layers = 2, .segments = segments, .hidden = hidden, .train_embedding = true});
      const auto many = parts->accumulate(made_->captured, 7, 0.01);
      EXPECT_NEAR(many.sum, one.sum, 1e-5 * one.sum);
      EXPECT_EQ(many.count, one.count);
      for (size_t i = 0; i < whole->parameters().all().size(); ++i) {
        const auto& name = whole->parameters().all()[i].name;
        const auto a = whole->parameters().all()[i].values.grad(), b = parts->parameters().all()[i].values.grad();
        ASSERT_TRUE(a.defined() && b.defined()) << name;
        EXPECT_LT(distance(a, b), 1e-5 * (1e-3 + a.abs().max().item<double>())) << name << " in " << segments;
      }
    }
  }
}

TEST_F(PEagleTest, OnePassIsWhatADraftingEngineComputes) {
  const torch::NoGradGuard frozen;
  const auto p_eagle = head({.layers = 3});
  const auto features = p_eagle->features(made_->captured);
  const auto& tokens = made_->example.tokens;
  const Segment all = partition(sample_cod(8, 30, 4, 1.0, 0), 1).front();
  const auto states = p_eagle->forward(features, tokens, all);
  for (size_t i = 0; i < all.own.size(); i += 7) {
    // The context up to where the chain began, and the masked rows so far, plainly causal.
    const CodRow row = all.own[i];
    Segment alone;
    for (int64_t p = 0; p <= row.position - row.depth; ++p) alone.own.push_back({p, 0});
    for (int64_t j = 1; j <= row.depth; ++j) alone.own.push_back({row.position - row.depth + j, j});
    const auto last = p_eagle->forward(features, tokens, alone)[-1];
    EXPECT_LT(distance(states[static_cast<int64_t>(i)], last), 2e-4) << row.position << ' ' << row.depth;
  }
}

}  // namespace
}  // namespace sluice::test

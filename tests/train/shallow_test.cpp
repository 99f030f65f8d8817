#include "train/shallow.h"

#include <gtest/gtest.h>

#include "train/heads.h"

namespace sluice::test {
namespace {

// A target of each family of RoPE pairs, its states as the engine computes them.
struct Ran {
  const Opened& opened;
  Example example;
  Captured captured;
};
std::unique_ptr<Ran> run_target(const std::string& name, const TinyModelSpec& spec) {
  auto ran = std::make_unique<Ran>(Ran{open_tiny(name, spec), {}, {}});
  Dice dice(3);
  ran->example.n_prompt = 4;
  for (int i = 0; i < 24; ++i) ran->example.tokens.push_back(dice.below(ran->opened.model.hparams().n_vocab));
  std::vector<int32_t> taps;
  for (int32_t l = 0; l <= spec.n_layers; ++l) taps.push_back(l);
  ran->captured = Capture::create(ran->opened.model, {.taps = taps, .kv = KvType::kF32})->run(ran->example);
  return ran;
}

TEST(Shallow, WithAllOfTheTargetsLayersItIsTheTarget) {
  const torch::NoGradGuard frozen;
  const TinyModelSpec spec{.n_layers = 4};
  const auto ran = run_target("shallow-target", spec);
  const auto& h = ran->opened.model.hparams();
  const auto target = tensors_of(ran->opened);
  const auto raw = ran->captured.layer(4);
  const auto last = to_tensor(raw, {24, h.d_model});
  for (const int32_t input : {0, 2}) {
    std::vector<int32_t> layers;
    for (int32_t l = input; l < 4; ++l) layers.push_back(l);
    Shallow whole(h, target, {.draft = input == 0, .input = input, .layers = layers}, {});
    Parameters unused;
    const Output output(unused, layer_shape(h), target, {});
    const auto logits = whole.forward(to_tensor(ran->captured.layer(input), {24, h.d_model}), 0);
    EXPECT_LT(distance(logits, output.target_logits(last)), 2e-3) << input;
  }
}

TEST(Shallow, AnExitWithoutLayersLearnsAMatrix) {
  const auto ran = run_target("shallow-target", {.n_layers = 4});
  Shallow exit(ran->opened.model.hparams(), tensors_of(ran->opened), {.input = 2, .stages = 4}, {});
  const auto loss = exit.accumulate(ran->captured, 0, 1.0);
  EXPECT_EQ(loss.count, 20);
  EXPECT_GT(exit.parameters()["output.weight"].grad().abs().max().item<double>(), 0.0);
  exit.evaluate(ran->captured);
  const auto summary = exit.summary();
  EXPECT_GE(summary["equivalent_acceptance_length"].get<double>(), 1.0);
  EXPECT_NEAR(summary["kl"].get<double>(), loss.sum / 20, 1e-4);
}

}  // namespace
}  // namespace sluice::test

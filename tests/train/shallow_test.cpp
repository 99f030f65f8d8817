#include "train/shallow.h"

#include <gtest/gtest.h>

#include "train/heads.h"
#include "train/states.h"

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

TEST(Shallow, LayersOfExpertsAreRefusedInOneLine) {
  const auto tensors = TargetTensors::open(six_layers_of("qwen3moe").model);
  ASSERT_FALSE(tensors);
  EXPECT_NE(tensors.error().message.find("experts or latent attention"), std::string::npos);
}

TEST(Shallow, LayersThatDifferAreRefusedInOneLine) {
  const auto tensors = TargetTensors::open(sharing_layers().model);
  ASSERT_FALSE(tensors);
  EXPECT_NE(tensors.error().message.find("differ in their heads"), std::string::npos);
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

TEST(Shallow, TheOutputBeginsBehindAFittedMapToTheTargetsLastStates) {
  const torch::NoGradGuard frozen;
  const auto& opened = six_layers();
  const auto& h = opened.model.hparams();
  const auto made = make_up(h, 400, 4);
  auto& last = made->captured.states.back();
  const auto& early = made->captured.states[2];
  std::reverse_copy(early.begin(), early.end(), last.begin());  // so the rows too are turned round …
  for (int64_t t = 0; t < 200; ++t)
    std::swap_ranges(last.begin() + t * h.d_model, last.begin() + (t + 1) * h.d_model,
                     last.end() - (t + 1) * h.d_model);  // … and back: now each row's columns are
  const auto target = tensors_of(opened);
  const auto hidden = last_states_of(made->captured, h.d_model), input = states_of(made->captured, 2, h.d_model);
  const auto right = [&](Shallow& exit) {
    Parameters unused;
    const Output output(unused, layer_shape(h), target, {});
    const auto same = exit.forward(input, 0).argmax(-1).eq(output.target_logits(hidden).argmax(-1));
    return same.to(torch::kFloat).mean().item<double>();
  };
  Shallow exit(h, target, {.input = 2, .stages = 3}, {});
  EXPECT_LT(right(exit), 0.2);
  exit.begin([&](size_t) { return made->captured; }, 1);
  EXPECT_GT(right(exit), 0.9);
}

}  // namespace
}  // namespace sluice::test

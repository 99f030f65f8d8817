#include "train/spd.h"

#include <gtest/gtest.h>

#include "train/heads.h"

namespace sluice::test {
namespace {

// The module as the paper writes it down, row by row, without sharing anything.
class Definition {
 public:
  Definition(Spd& spd, const Opened& opened, const SpdOptions& options, const Spd::States& states, int64_t n_tokens,
             int64_t active)
      : p_(spd.parameters()),
        shape_(layer_shape(opened.model.hparams())),
        options_(options),
        states_(states),
        n_tokens_(n_tokens),
        n_(static_cast<int64_t>(options.cuts.size()) - 1),
        active_(active),
        taps_(spd_taps(options.cuts, options.single_depth)) {}

  // SPD eq. (1): [d].
  torch::Tensor g(int64_t depth, int64_t token) const {
    std::vector<torch::Tensor> parts;
    for (const int32_t layer : taps_[static_cast<size_t>(depth)]) parts.push_back(states_.at(layer)[token]);
    return torch::mv(p_["fc." + std::to_string(options_.shared_fc ? std::min<int64_t>(1, depth) : depth) + ".weight"],
                     torch::cat(parts));
  }

  // Eq. (3): the depth of a token in the call at time t.
  int64_t depth(int64_t token, int64_t t) const {
    const int64_t newest = options_.output_timing ? 1 : 0;
    return t - token < active_ ? std::min(n_, t - token + newest) : n_;
  }

  // The call at time t: rows 0 … t, of which the last one's state comes out.
  torch::Tensor call(int64_t t) const {
    std::vector<torch::Tensor> rows;
    for (int64_t token = 0; token <= t; ++token) rows.push_back(g(depth(token, t), token));
    auto x = torch::stack(rows);
    const auto features = x;
    const auto positions = torch::arange(t + 1, torch::kLong);
    const auto causal = mask_of(positions.unsqueeze(0) <= positions.unsqueeze(1));
    for (int64_t i = 0; i < options_.layers; ++i) {
      const auto next = decoder_layer(x, positions, causal, p_, "blk." + std::to_string(i) + ".", shape_);
      x = options_.attention == Attention::kFull ? next : torch::cat({features.slice(0, 0, t), next.slice(0, t)});
    }
    return product(rms_norm(x[t], p_["output_norm.weight"], shape_.epsilon), p_["output.weight"]);
  }

 private:
  const Parameters& p_;
  LayerShape shape_;
  const SpdOptions& options_;
  const Spd::States& states_;
  int64_t n_tokens_, n_, active_;
  std::vector<std::vector<int32_t>> taps_;
};

void expect_as_defined(SpdOptions options) {
  const torch::NoGradGuard frozen;
  const Opened& opened = six_layers();
  const auto target = tensors_of(opened);
  options.init = Init::kRandom;
  Spd spd(opened.model.hparams(), target, options, first_tokens(20));
  const auto made = make_up(opened.model.hparams(), 13, 3);
  const auto states = spd.states(made->captured);
  const auto n = static_cast<int64_t>(options.cuts.size()) - 1 - (options.output_timing ? 1 : 0);
  for (int64_t active = 1; active <= n; ++active) {
    const Definition definition(spd, opened, options, states, 13, active);
    for (const int64_t first : {0, 5}) {
      const auto logits = spd.forward(states, first, 12, active);
      for (int64_t t = first; t < 12; ++t)
        EXPECT_LT(distance(logits[t - first], definition.call(t)), 2e-4) << "active " << active << " time " << t;
    }
  }
}

TEST(Spd, TrainsTheModuleOfThePaperAtEveryFill) {
  expect_as_defined({.cuts = {0, 2, 4, 6}, .layers = 2, .attention = Attention::kSingle});
  expect_as_defined({.cuts = {0, 2, 4, 6}, .layers = 3, .attention = Attention::kFull});
  expect_as_defined({.cuts = {0, 1, 2, 3, 4, 5, 6}, .layers = 1, .attention = Attention::kFull});
  expect_as_defined({.cuts = {0, 5, 6}, .layers = 2, .attention = Attention::kFull, .feature_norm = false});
}

TEST(Spd, TrainsItsAblationsToo) {
  expect_as_defined({.cuts = {0, 2, 4, 6}, .layers = 2, .output_timing = true});
  expect_as_defined({.cuts = {0, 2, 4, 6}, .layers = 2, .single_depth = true});
  expect_as_defined({.cuts = {0, 2, 4, 6}, .layers = 2, .shared_fc = true});
}

TEST(Spd, TakesTheStatesOfEquation1) {
  EXPECT_EQ(spd_taps({0, 3, 6, 10}, false), (std::vector<std::vector<int32_t>>{{0}, {0, 1, 3}, {0, 3, 6}, {0, 5, 10}}));
  EXPECT_EQ(spd_taps({0, 3, 6}, true), (std::vector<std::vector<int32_t>>{{0}, {3}, {6}}));
}

// A pipeline of n stages, step by step.
int64_t simulated_steps(const std::vector<std::vector<bool>>& right) {
  const auto n = static_cast<int64_t>(right.size());
  const auto tokens = static_cast<int64_t>(right.front().size());
  // entered[i]: the step in which token i, which is right, entered; the guess of i + 1 is made in that step.
  int64_t entered = 0, active = 1;
  for (int64_t i = 0; i < tokens; ++i) {
    if (right[static_cast<size_t>(active - 1)][static_cast<size_t>(i)]) {
      entered += 1;
      active = std::min(active + 1, n);
    } else {
      const int64_t logits_at_end_of = entered + n - 1;
      entered = logits_at_end_of + 1;
      active = 1;
    }
  }
  return entered;
}

TEST(Spd, AWrongGuessCostsAllStages) {
  EXPECT_EQ(spd_steps({{true, true, true}, {true, true, true}}), 3);
  EXPECT_EQ(spd_steps({{false, false, false}, {true, true, true}}), 6);
  EXPECT_EQ(spd_steps({{true, true, true}, {false, true, false}}), 1 + 1 + 2);
  Dice dice(5);
  for (int i = 0; i < 50; ++i) {
    std::vector<std::vector<bool>> right(static_cast<size_t>(dice.between(1, 6)));
    const int32_t n = dice.between(1, 30);
    for (auto& row : right)
      for (int32_t t = 0; t < n; ++t) row.push_back(dice.chance(0.7));
    EXPECT_EQ(spd_steps(right), simulated_steps(right));
  }
}

TEST(Spd, HalfOfTheExamplesHaveAFullPipeline) {
  const Opened& opened = six_layers();
  Spd spd(opened.model.hparams(), tensors_of(opened), {.cuts = {0, 1, 2, 3, 4}, .layers = 1, .init = Init::kRandom},
          first_tokens(8));
  std::vector<int> counts(5);
  for (uint64_t draw = 0; draw < 2000; ++draw) ++counts[static_cast<size_t>(spd.active(draw))];
  EXPECT_EQ(counts[0], 0);
  EXPECT_NEAR(counts[4], 1000, 100);
  for (size_t a = 1; a <= 3; ++a) EXPECT_NEAR(counts[a], 333, 70) << a;
}

TEST(Spd, ModuleBeginsAsTheTargetsEndWhenItsStatesAreKnown) {
  // With one stage and one layer the deepest state determines the goal of the least squares only in part; what must
  // hold is that fitting lowers the loss.
  const Opened& opened = six_layers();
  const auto target = tensors_of(opened);
  const auto made = make_up(opened.model.hparams(), 200, 100);
  SpdOptions options{.cuts = {0, 3, 6}, .layers = 1, .init = Init::kLens};
  Spd spd(opened.model.hparams(), target, options, first_tokens(20));
  const auto before = spd.parameters()["fc.2.weight"].clone();
  spd.begin([&](size_t) { return made->captured; }, 1);
  EXPECT_GT(distance(before, spd.parameters()["fc.2.weight"]), 0.0);
}

}  // namespace
}  // namespace sluice::test

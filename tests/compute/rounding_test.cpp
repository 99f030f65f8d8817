// States that go to the next stage as f16: what is rounded, and where.
#include "compute/rounding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "compute/stage_runner.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// By the conversions of base/half.h, which kernels may not use.
float rounded(float x) {
  if (std::fabs(x) > kLargestHalf) return std::copysign(kLargestHalf, x);
  return to_f32(to_half(x));
}

TEST(Rounding, IsToTheNearestHalf) {
  std::vector<float> states;
  for (uint64_t bits = 0; bits <= 0xFFFFFFFF; bits += 0x10FEF) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!std::isnan(x)) states.push_back(x);
  }
  std::vector<float> once = states;
  EXPECT_GT(round_to_half(once), 0);
  for (size_t i = 0; i < states.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(once[i]), std::bit_cast<uint32_t>(rounded(states[i]))) << states[i];
  std::vector<float> twice = once;
  EXPECT_EQ(round_to_half(twice), 0);
  EXPECT_EQ(twice, once) << "what is rounded stays";
}

TEST(Rounding, WhatIsBeyondTheLargestBecomesThatAndIsCounted) {
  std::vector<float> states = {65504.0f, 65504.1f, -1e30f, kInfinity, -kInfinity, 1.0f, std::nanf("")};
  EXPECT_EQ(round_to_half(states), 4);
  for (const size_t i : {0, 1, 3}) EXPECT_EQ(states[i], 65504.0f);
  for (const size_t i : {2, 4}) EXPECT_EQ(states[i], -65504.0f);
  EXPECT_EQ(states[5], 1.0f);
  EXPECT_TRUE(std::isnan(states[6]));
}

TEST(Rounding, HalvesComeBackAsTheyWent) {
  std::vector<float> states;
  for (int i = 0; i < 1000; ++i) states.push_back(0.37f * static_cast<float>(i * i % 977) - 180.0f);
  round_to_half(states);
  std::vector<Half> halves(states.size());
  std::vector<float> back(states.size());
  to_halves(states, halves);
  from_halves(halves, back);
  EXPECT_EQ(back, states);
}

// Rows of one prompt through these layers, and the states that come out.
std::vector<float> through(const ModelFile& model, StageOptions options, int32_t n_rows, std::vector<float> states) {
  options.with_embedding = options.range.first == 0;
  options.with_head = false;
  options.n_cells = 64;
  const auto runner = make_stage_runner(model, options).value();
  std::vector<Row> rows;
  for (int32_t i = 0; i < n_rows; ++i)
    rows.push_back({.sequence = SequenceId(0),
                    .token = 70 + i,
                    .position = i,
                    .cell = sluice::Cell(i),
                    .parent = sluice::Cell(i - 1),
                    .kind = Row::Kind::kPrompt});
  runner->enter(std::vector<PathUpdate>{Open{SequenceId(0), {}}}, rows);
  states.resize(static_cast<size_t>(n_rows) * static_cast<size_t>(model.hparams().d_model));
  runner->run(rows, states);
  return states;
}

TEST(Rounding, LayersGoOnWithWhatAnotherStageWouldHaveGot) {
  const TinyModelSpec spec{.n_layers = 6, .d_model = 64, .n_heads = 4, .n_kv_heads = 2, .d_ff = 96, .seed = 3};
  const ModelFile model = ModelFile::open(write_tiny_model(spec, temp_path("rounding.gguf"))).value();
  for (const int32_t threads : {1, 3})
    for (const int32_t n_rows : {1, 2, 7}) {
      std::vector<float> states = through(model, {.range = {0, 2}, .threads = threads}, n_rows, {});
      const std::vector<float> exact = states;
      for (float& x : states) x = rounded(x);
      EXPECT_NE(states, exact);
      EXPECT_EQ(through(model, {.range = {0, 2}, .threads = threads, .rounded = {2, 5}}, n_rows, {}), states);
      states = through(model, {.range = {2, 5}, .threads = threads}, n_rows, states);
      for (float& x : states) x = rounded(x);
      states = through(model, {.range = {5, 6}, .threads = threads}, n_rows, states);
      EXPECT_EQ(through(model, {.range = {0, 6}, .threads = threads, .rounded = {2, 5}}, n_rows, {}), states);
    }
}

}  // namespace
}  // namespace sluice::test

// 64 cells of the grid on the default model, drawn once and for all; bench/exactness.py runs the whole of it.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "support/harness.h"

namespace sluice {
namespace {

using namespace test;

const char* const kPrompts[] = {
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10,",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is",
    "def add(a, b):\n    return a + b\n\ndef sub(a, b):\n    return a - b\n\ndef mul(a, b):\n",
    "Once upon a time, in a small village by the sea,",
};

const Opened* default_model() {
  static const std::optional<Opened> opened = [] {
    const std::string path = default_model_path();
    return path.empty() ? std::nullopt : std::optional(open(path));
  }();
  return opened ? &*opened : nullptr;
}

class DefaultModel : public ::testing::TestWithParam<int32_t> {};

TEST_P(DefaultModel, SpecPipeGivesTheTokensOfPlainDecoding) {
  const Opened* opened = default_model();
  if (opened == nullptr) GTEST_SKIP() << "the default model is not installed; ./run installs it, SLUICE_MODEL names it";
  for (int32_t cell = 8 * GetParam(); cell < 8 * (GetParam() + 1); ++cell) {
    Dice dice(static_cast<uint64_t>(cell));
    const PipelineSpec setup{.stages = dice.pick({1, 2, 3, 5, 6, 10, 15, 30}), .threads = dice.chance(0.5)};
    RequestSpec spec;
    spec.method_options.width = dice.pick({1, 4, 16, 64});
    spec.sampling = {.temperature = dice.pick({0.0f, 1.0f}), .seed = 11};
    auto prompt = opened->tokenizer.encode(kPrompts[dice.below(4)], true, false);
    ASSERT_TRUE(prompt);
    spec.prompt = std::move(*prompt);
    spec.ignore_end = true;
    // What a wrong guess costs grows with the rows in flight.
    spec.max_tokens = spec.method_options.width * setup.stages > 128 ? 8 : 24;
    const auto engine = make_engine(*opened, setup);
    const RequestId id = submit(*engine, spec);
    finish(*engine);
    EXPECT_EQ(answer(*engine, id), plain_decoding(*opened, spec))
        << "cell " << cell << ": " << describe(setup) << "; " << describe(spec);
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, DefaultModel, ::testing::Range(0, 8));

}  // namespace
}  // namespace sluice

// States that go from stage to stage as f16 give another text than the model's own, and that is the same one for every
// method, width and executor with the same cuts.
#include <gtest/gtest.h>

#include "engine/ask.h"
#include "support/byte_executor.h"
#include "support/harness.h"
#include "wire/codec.h"

namespace sluice {
namespace {

using namespace test;

const std::vector<int32_t> kCuts = {2, 3, 5};

PipelineSpec pipeline() {
  return {.cuts = kCuts, .drafts = {&two_layers()}, .activations = Activations::kF16, .context = 128, .n_cells = 4096};
}

RequestSpec request(const char* method, float temperature, int32_t width = 4) {
  RequestSpec spec = ask("to be or not to be", 40, method);
  spec.sampling = {.temperature = temperature, .seed = 3};
  spec.method_options.width = width;
  return spec;
}

// Of one runner that rounds its states, and no pipeline.
std::vector<Token> rounded(const RequestSpec& spec) {
  return plain_decoding(six_layers(), spec, KvType::kF16, 128, kCuts);
}

void expect_rounded(Engine& engine, const RequestSpec& spec, const std::string& what) {
  const RequestId id = submit(engine, spec);
  finish(engine);
  EXPECT_EQ(answer(engine, id), rounded(spec)) << what << "; " << describe(spec);
}

TEST(ActivationsAsF16, EveryMethodGivesTheTokensOfPlainDecodingWithRoundedStates) {
  for (const char* method : {"ar", "sd", "specinfer", "specpipe", "surge", "pipespec", "ssd"})
    for (const float temperature : {0.0f, 0.8f}) {
      const RequestSpec spec = request(method, temperature);
      PipelineSpec setup = pipeline();
      expect_rounded(*make_engine(six_layers(), setup), spec, "virtual");
      setup.lazy = true;
      expect_rounded(*make_engine(six_layers(), setup), spec, "lazy");
      setup.lazy = false;
      setup.threads = true;
      expect_rounded(*make_engine(six_layers(), setup), spec, "threads");
      const auto over_bytes = make_engine(six_layers(), pipeline(), [](std::unique_ptr<Executor>) {
        return make_byte_executor(six_layers(), pipeline(), 5);
      });
      expect_rounded(*over_bytes, spec, "bytes");
    }
}

TEST(ActivationsAsF16, TheWidthDoesNotMatter) {
  for (const int32_t width : {1, 16, 64})
    expect_rounded(*make_engine(six_layers(), pipeline()), request("specpipe", 0.8f, width), "virtual");
}

// Else the tests above show nothing.
TEST(ActivationsAsF16, TheTextIsAnotherThanTheModelsOwn) {
  int other = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    RequestSpec spec = request("ar", 1.0f);
    spec.sampling.seed = seed;
    other += rounded(spec) != plain_decoding(six_layers(), spec, KvType::kF16, 128);
  }
  EXPECT_GT(other, 0);
}

TEST(ActivationsAsF16, StagesThatAreLeftPassOnTheStatesThatTheyKept) {
  PipelineSpec setup = pipeline();
  setup.faults = {.seed = 7, .longest = 0.02, .losses = {200, 400}, .journal = 1 << 20};
  for (const char* method : {"ar", "surge"}) {
    const auto engine = make_engine(six_layers(), setup);
    const RequestId id = submit(*engine, request(method, 0.8f));
    finish(*engine);
    EXPECT_EQ(answer(*engine, id), rounded(request(method, 0.8f))) << method;
    EXPECT_GE(engine->request(id).stats.replays, 1) << method;
  }
}

TEST(ActivationsAsF16, TakeHalfTheBytes) {
  const auto bytes_between_stages = [](Activations activations) {
    PipelineSpec setup = pipeline();
    setup.activations = activations;
    size_t bytes = 0;
    int64_t rows = 0;
    const auto count = [&](const std::string& way, const std::vector<std::byte>& frame) {
      const auto message = decode(frame).value();
      const auto* batch = std::get_if<Batch>(&message);
      if (batch == nullptr || !way.starts_with("stage ") || way.ends_with("coordinator")) return;
      bytes += frame.size();
      rows += std::ssize(batch->rows);
    };
    const auto engine = make_engine(six_layers(), setup, [&](std::unique_ptr<Executor>) {
      return make_byte_executor(six_layers(), setup, 5,
                                [&](const std::string& way, std::vector<std::byte>& frame) { count(way, frame); });
    });
    submit(*engine, request("ar", 0.0f));
    finish(*engine);
    return std::pair(bytes, rows);
  };
  const auto [f32, n32] = bytes_between_stages(Activations::kF32);
  const auto [f16, n16] = bytes_between_stages(Activations::kF16);
  ASSERT_EQ(n32, n16) << "other batches: they can't be compared";
  const auto numbers = static_cast<size_t>(n32) * static_cast<size_t>(six_layers().model.hparams().d_model);
  EXPECT_EQ(f32 - f16, numbers * (sizeof(float) - sizeof(Half)));
}

}  // namespace
}  // namespace sluice

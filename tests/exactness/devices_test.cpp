// The promise on a device of ggml's, its CPU: the tokens of plain decoding on that device, by every method, as far as
// the class that it declares goes; and pipelines whose stages are on several devices.
#include <gtest/gtest.h>

#include "support/harness.h"

namespace sluice {
namespace {

using namespace test;

constexpr const char* kDevice = "ggml:cpu";

RequestSpec request(const std::string& method, float temperature, int32_t width = 8) {
  RequestSpec spec;
  for (const char c : std::string("one two one two one")) spec.prompt.push_back(3 + c);
  spec.sampling = {.temperature = temperature, .seed = 7};
  spec.max_tokens = 20;
  spec.method = method;
  spec.method_options.width = width;
  spec.method_options.depth = 3;
  spec.ignore_end = true;
  return spec;
}

std::vector<Token> answer_of(const PipelineSpec& setup, const RequestSpec& spec, Exactness exactness,
                             const Opened& model = six_layers()) {
  const auto engine = make_engine(model, setup);
  EXPECT_EQ(engine->exactness(), exactness);
  const RequestId id = submit(*engine, spec);
  finish(*engine);
  return answer(*engine, id);
}

void expect_the_tokens_of_plain_decoding(const Opened& model) {
  for (const float temperature : {0.0f, 1.0f}) {
    const auto expected = plain_decoding(model, request("ar", temperature), KvType::kF16, 256, {}, kDevice);
    for (const char* method : {"ar", "sd", "specinfer", "specpipe", "surge", "pipespec", "ssd"})
      for (const int32_t stages : {1, 3})
        for (const bool threads : {false, true}) {
          PipelineSpec setup{.stages = stages, .threads = threads, .devices = {kDevice}};
          if (method != std::string("ar")) setup.drafts = {&five_layers()};
          const RequestSpec spec = request(method, temperature);
          EXPECT_EQ(answer_of(setup, spec, Exactness::kWidthLocked, model), expected)
              << describe(setup) << "; " << describe(spec);
        }
  }
}

TEST(Devices, EveryMethodGivesTheTokensOfPlainDecodingOnTheSameDevice) {
  expect_the_tokens_of_plain_decoding(six_layers());
}

TEST(Devices, AndOfLayersThatTokensHaveEmbeddingsForWithExpertsOrSharedKeys) {
  for (const Opened* model : {&six_layers_of("gemma4"), &sharing_layers()}) expect_the_tokens_of_plain_decoding(*model);
}

// Layers of other kinds, in a chat's next turn too.
TEST(Devices, OtherLayersGiveTheTokensOfPlainDecodingOnTheSameDevice) {
  for (const char* family : {"qwen3moe", "gpt-oss", "gemma3", "qwen3next", "qwen35", "qwen35moe"}) {
    const Opened& model = six_layers_of(family);
    const auto expected = plain_decoding(model, request("ar", 0.0f), KvType::kF16, 256, {}, kDevice);
    for (const char* method : {"ar", "sd", "specpipe", "surge"})
      for (const int32_t stages : {1, 3}) {
        PipelineSpec setup{.stages = stages, .threads = stages > 1, .devices = {kDevice}};
        if (method != std::string("ar")) setup.drafts = {&six_layers()};
        const RequestSpec spec = request(method, 0.0f);
        const auto engine = make_engine(model, setup);
        EXPECT_EQ(engine->exactness(), Exactness::kWidthLocked) << family;
        const RequestId first = submit(*engine, spec);
        finish(*engine);
        EXPECT_EQ(answer(*engine, first), expected) << family << "; " << describe(setup) << "; " << describe(spec);
        RequestSpec next = spec;
        next.prompt.insert(next.prompt.end(), expected.begin(), expected.end());
        next.prompt.push_back(3 + 'x');
        next.continues = first;
        const RequestId second = submit(*engine, next);
        EXPECT_GT(engine->request(second).stats.reused_tokens, 0);
        finish(*engine);
        EXPECT_EQ(answer(*engine, second), plain_decoding(model, next, KvType::kF16, 256, {}, kDevice)) << family;
      }
  }
}

TEST(Devices, WidthsOfTreesMakeNoDifference) {
  const auto expected = plain_decoding(six_layers(), request("ar", 1.0f), KvType::kF32, 256, {}, kDevice);
  for (const int32_t width : {1, 4, 24, 64}) {
    const PipelineSpec setup{.stages = 3, .drafts = {&five_layers()}, .kv = KvType::kF32, .devices = {kDevice}};
    EXPECT_EQ(answer_of(setup, request("specpipe", 1.0f, width), Exactness::kWidthLocked), expected) << width;
  }
}

TEST(Devices, TheNextTurnOfAChatGoesOnInTheCellsOfTheOneBefore) {
  const auto engine = make_engine(six_layers(), {.stages = 2, .drafts = {&five_layers()}, .devices = {kDevice}});
  const RequestId first = submit(*engine, request("specpipe", 0.0f));
  finish(*engine);
  RequestSpec next = request("specpipe", 1.0f);
  next.prompt = engine->request(first).tokens;
  next.prompt.resize(next.prompt.size() - 5);
  for (const Token token : {80, 81, 82}) next.prompt.push_back(token);
  const auto expected = plain_decoding(six_layers(), next, KvType::kF16, 256, {}, kDevice);
  next.continues = first;
  const RequestId second = submit(*engine, next);
  EXPECT_GT(engine->request(second).stats.reused_tokens, 20);
  finish(*engine);
  EXPECT_EQ(answer(*engine, second), expected);
}

TEST(Devices, RequestsThatShareBatchesAnswerAsEachAlone) {
  const auto engine = make_engine(six_layers(), {.stages = 2, .drafts = {&five_layers()}, .devices = {kDevice}});
  std::vector<RequestSpec> specs;
  std::vector<RequestId> ids;
  for (int32_t i = 0; i < 3; ++i) {
    specs.push_back(request("surge", static_cast<float>(i) / 2));
    specs.back().prompt.resize(specs.back().prompt.size() - static_cast<size_t>(i));
    ids.push_back(submit(*engine, specs.back()));
  }
  finish(*engine);
  for (size_t i = 0; i < ids.size(); ++i)
    EXPECT_EQ(answer(*engine, ids[i]), plain_decoding(six_layers(), specs[i], KvType::kF16, 256, {}, kDevice)) << i;
}

TEST(Devices, StagesOnSeveralDevicesHaveTheClassOfTheWeakestAndOneTextForAllMethods) {
  PipelineSpec setup{.stages = 3, .drafts = {&five_layers()}, .devices = {kCpuDevice, kDevice, kCpuDevice}};
  const auto expected = answer_of(setup, request("ar", 0.0f), Exactness::kWidthLocked);
  for (const char* method : {"sd", "specpipe", "surge"})
    for (const bool threads : {false, true}) {
      setup.threads = threads;
      EXPECT_EQ(answer_of(setup, request(method, 0.0f), Exactness::kWidthLocked), expected) << method;
    }
  setup.devices = {kCpuDevice};
  answer_of(setup, request("ar", 0.0f), Exactness::kBitwise);
}

}  // namespace
}  // namespace sluice

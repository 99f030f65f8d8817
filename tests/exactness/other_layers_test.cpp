// The promise for layers that are not llama's: mixtures of experts, whose rows share products with whoever chose the
// same experts, latents, windows, caps. The same tokens by every method, stages, widths and executors, in a chat's next
// turn, and in random stories.
#include <gtest/gtest.h>

#include <algorithm>

#include "exactness/story.h"
#include "session/cuts.h"
#include "support/harness.h"

namespace sluice {
namespace {

using namespace test;

class OtherLayers : public ::testing::TestWithParam<const char*> {
 protected:
  static const Opened& model() {
    return GetParam() == std::string("sharing") ? sharing_layers() : six_layers_of(GetParam());
  }
};

RequestSpec request(const std::string& method, float temperature, int32_t width) {
  RequestSpec spec;
  for (const char c : std::string("one two one two one")) spec.prompt.push_back(3 + c);
  spec.sampling = {.temperature = temperature, .seed = 7};
  spec.max_tokens = 30;  // beyond the windows of those that have them
  spec.method = method;
  spec.method_options.width = width;
  spec.method_options.depth = 3;
  spec.ignore_end = true;
  return spec;
}

TEST_P(OtherLayers, EveryMethodGivesTheTokensOfPlainDecoding) {
  int64_t hits = 0, flushes = 0;
  for (const float temperature : {0.0f, 1.0f}) {
    const auto expected = plain_decoding(model(), request("ar", temperature, 1));
    for (const char* method : {"ar", "sd", "specinfer", "specpipe", "surge", "pipespec", "ssd"})
      for (const int32_t stages : {1, 3, most_stages(model().model.hparams())})
        for (const int32_t width : {1, 4, 16})
          for (const bool threads : {false, true}) {
            if (threads && width == 4) continue;
            PipelineSpec setup{.stages = stages, .threads = threads};
            if (method != std::string("ar")) setup.drafts = {&six_layers()};
            const RequestSpec spec = request(method, temperature, width);
            const auto engine = make_engine(model(), setup);
            const RequestId id = submit(*engine, spec);
            finish(*engine);
            EXPECT_EQ(answer(*engine, id), expected) << describe(setup) << "; " << describe(spec);
            hits += engine->request(id).stats.accepted;
            flushes += engine->request(id).stats.flushes;
          }
  }
  EXPECT_GT(hits, 0);
  EXPECT_GT(flushes, 0);
}

TEST_P(OtherLayers, TheNextTurnOfAChatGoesOnInTheCellsOfTheOneBefore) {
  const auto engine = make_engine(model(), {.stages = 2, .drafts = {&six_layers()}});
  const RequestId first = submit(*engine, request("specpipe", 0.0f, 8));
  finish(*engine);
  RequestSpec next = request("surge", 0.0f, 8);
  const auto said = answer(*engine, first);
  next.prompt.insert(next.prompt.end(), said.begin(), said.end());
  next.prompt.push_back(3 + 'x');
  next.continues = first;
  const auto expected = plain_decoding(model(), next);
  const RequestId second = submit(*engine, next);
  finish(*engine);
  EXPECT_GT(engine->request(second).stats.reused_tokens, 0);
  EXPECT_EQ(answer(*engine, second), expected);
}

// As where a template shows an answer without its reasoning.
TEST_P(OtherLayers, TheNextTurnGoesOnFromTheMiddleOfAnAnswer) {
  const auto engine = make_engine(model(), {.stages = 2, .drafts = {&six_layers()}});
  RequestSpec spec = request("specpipe", 0.0f, 8);
  for (int i = 0; i < 3; ++i) spec.prompt.insert(spec.prompt.end(), spec.prompt.begin(), spec.prompt.begin() + 19);
  const auto n_prompt = static_cast<int64_t>(spec.prompt.size());
  const RequestId first = submit(*engine, spec);
  finish(*engine);
  const auto said = answer(*engine, first);
  spec.prompt.insert(spec.prompt.end(), said.begin() + 3, said.begin() + 11);
  spec.continues = first;
  const RequestId second = submit(*engine, spec);
  finish(*engine);
  const int64_t reused = engine->request(second).stats.reused_tokens;
  const auto behind = static_cast<int64_t>(Folding().behind_checkpoint);
  EXPECT_TRUE(model().model.hparams().folds() ? reused == n_prompt - behind : reused >= n_prompt) << reused;
  EXPECT_EQ(answer(*engine, second), plain_decoding(model(), spec));
}

INSTANTIATE_TEST_SUITE_P(Families, OtherLayers,
                         ::testing::Values("llama", "qwen2moe", "qwen3moe", "glm4moe", "gpt-oss", "gemma2", "gemma3",
                                           "qwen3next", "qwen35", "qwen35moe", "gemma4", "sharing"),
                         [](const auto& family) {
                           std::string name = family.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Texts much longer than windows, of which layers that have one keep no more than they must; drafts by the model
// itself, whose layers do likewise.
class Windows : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr int32_t kContext = 512, kRows = 16, kCutBack = 8;
  static const Opened& model() {
    return GetParam() == std::string("sharing") ? sharing_layers() : six_layers_of(GetParam());
  }
  static PipelineSpec setup(int32_t stages = 2) {
    return {.stages = stages,
            .drafts = {&model()},
            .context = kContext,
            .kept_behind = kRows + kCutBack,
            .scheduler = {.row_budget = kRows, .prompt_chunk = kRows}};
  }
  static RequestSpec spec(const std::string& method) {
    RequestSpec spec = request(method, 1.0f, 4);
    spec.max_tokens = 200;
    return spec;
  }
  static std::vector<Token> plain(const RequestSpec& spec) {
    return plain_decoding(model(), spec, KvType::kF16, kContext);
  }
};

TEST_P(Windows, EveryMethodGivesTheSameTokensWhileTheyForget) {
  const auto expected = plain(spec("ar"));
  for (const char* method : {"ar", "sd", "specpipe", "surge", "ssd"})
    for (const int32_t stages : {1, 3}) {
      const auto engine = make_engine(model(), setup(stages));
      const RequestId id = submit(*engine, spec(method));
      finish(*engine);
      EXPECT_EQ(answer(*engine, id), expected) << method << ", stages " << stages;
    }
}

TEST_P(Windows, ANextTurnGoesOnFromAsFarBackAsTheyRemember) {
  for (const auto& [back, reuses] :
       {std::pair(kCutBack, true), std::pair(kCutBack + 1, false), std::pair(150, false)}) {
    const auto engine = make_engine(model(), setup());
    RequestSpec next = spec("specpipe");
    const RequestId first = submit(*engine, next);
    finish(*engine);
    const auto said = answer(*engine, first);
    const size_t n_prompt = next.prompt.size();
    next.prompt.insert(next.prompt.end(), said.begin(), said.end());
    const auto committed = static_cast<int64_t>(next.prompt.size()) - 1;  // the last token was never passed
    next.prompt.resize(static_cast<size_t>(committed - back));
    next.prompt.insert(next.prompt.end(), {3 + 'x', 3 + 'y'});
    ASSERT_NE(said[next.prompt.size() - n_prompt - 2], 3 + 'x');
    next.continues = first;
    const auto expected = plain(next);
    const RequestId second = submit(*engine, next);
    finish(*engine);
    EXPECT_EQ(engine->request(second).stats.reused_tokens, reuses ? committed - back : 0);
    EXPECT_EQ(answer(*engine, second), expected) << back;
  }
}

// A stage that goes on computes again what it has forgotten, and only from where others' states are missing.
TEST_P(Windows, StagesThatAreLeftComputeWhatTheyForgotWhenOneIsLost) {
  const auto expected = plain(spec("ar"));
  int64_t replays = 0;
  for (const uint64_t loss : {1200, 1500, 1800, 2100}) {
    PipelineSpec faulty = setup(3);
    faulty.drafts = {};
    const int64_t state = int64_t{model().model.hparams().d_model} * int64_t{sizeof(float)};
    faulty.faults = {.losses = {loss}, .journal = 100 * state};  // of the first hundred cells
    const auto engine = make_engine(model(), faulty);
    const RequestId id = submit(*engine, spec("ar"));
    finish(*engine);
    EXPECT_EQ(answer(*engine, id), expected) << loss;
    replays += engine->request(id).stats.replays;
  }
  EXPECT_GT(replays, 0);
}

INSTANTIATE_TEST_SUITE_P(Families, Windows, ::testing::Values("gpt-oss", "gemma2", "gemma3", "gemma4", "sharing"),
                         [](const auto& family) {
                           std::string name = family.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// The layer that came with the model drafts for every method that asks it.
class FurtherLayer : public ::testing::TestWithParam<const char*> {};

TEST_P(FurtherLayer, EveryMethodThatItDraftsForGivesTheTokensOfPlainDecoding) {
  const Opened& model = six_layers_of(GetParam());
  const auto head = HeadFile::open(model.model.path(), model.model);
  ASSERT_TRUE(head) << head.error().message;
  int64_t drafted = 0;
  for (const std::vector<SourceKind>& sources :
       std::vector<std::vector<SourceKind>>{{SourceKind::kMtp}, {SourceKind::kNgram, SourceKind::kMtp}})
    for (const float temperature : {0.0f, 1.0f}) {
      const auto expected = plain_decoding(model, request("ar", temperature, 1));
      for (const char* method : {"sd", "specinfer", "specpipe", "surge", "pipespec", "ssd"})
        for (const int32_t stages : {1, 3, 6})
          for (const bool threads : {false, true}) {
            const PipelineSpec setup{.stages = stages, .threads = threads, .head = &*head};
            RequestSpec spec = request(method, temperature, 8);
            spec.sources = sources;
            const auto engine = make_engine(model, setup);
            const RequestId id = submit(*engine, spec);
            finish(*engine);
            EXPECT_EQ(answer(*engine, id), expected) << describe(setup) << "; " << describe(spec);
            drafted += engine->request(id).stats.drafted;
          }
    }
  EXPECT_GT(drafted, 2000);
}

TEST_P(FurtherLayer, GoesOnInTheNextTurn) {
  const Opened& model = six_layers_of(GetParam());
  const auto head = HeadFile::open(model.model.path(), model.model);
  ASSERT_TRUE(head) << head.error().message;
  const auto engine = make_engine(model, {.stages = 2, .head = &*head});
  RequestSpec spec = request("surge", 0.0f, 8);
  spec.sources = {SourceKind::kMtp};
  const RequestId first = submit(*engine, spec);
  finish(*engine);
  const auto said = answer(*engine, first);
  spec.prompt.insert(spec.prompt.end(), said.begin(), said.begin() + 11);
  spec.prompt.push_back(3 + 'x');
  spec.continues = first;
  const RequestId second = submit(*engine, spec);
  finish(*engine);
  // What is folded is not taken apart, and the prompt was not worth a checkpoint.
  EXPECT_EQ(engine->request(second).stats.reused_tokens > 0, !model.model.hparams().folds());
  spec.continues.reset();
  EXPECT_EQ(answer(*engine, second), plain_decoding(model, spec));
}

INSTANTIATE_TEST_SUITE_P(Families, FurtherLayer,
                         ::testing::Values("glm4moe", "deepseek2", "qwen3next", "qwen35", "qwen35moe"));

// Fifty stories of models of these families, half of them with faults.
void tell_fifty(uint64_t first_seed, std::initializer_list<const char*> families) {
  int64_t hits = 0, flushes = 0;
  for (uint64_t seed = first_seed; seed < first_seed + 50; ++seed) {
    Story story(seed, /*faults=*/seed % 2 == 1, six_layers_of(families.begin()[seed / 2 % families.size()]));
    ASSERT_NO_FATAL_FAILURE(story.run());
    hits += story.hits;
    flushes += story.flushes;
  }
  EXPECT_GT(hits, 20);
  EXPECT_GT(flushes, 20);
}

class StoriesOfOtherLayers : public ::testing::TestWithParam<uint64_t> {};

TEST_P(StoriesOfOtherLayers, GiveEveryRequestTheTokensOfPlainDecoding) {
  tell_fifty(5000 + 50 * GetParam(), {"qwen2moe", "glm4moe"});
}

INSTANTIATE_TEST_SUITE_P(Fifties, StoriesOfOtherLayers, ::testing::Range<uint64_t>(0, 4));

// Of models with windows, in texts much longer than those, which they forget.
class StoriesOfWindows : public ::testing::TestWithParam<uint64_t> {};

TEST_P(StoriesOfWindows, GiveEveryRequestTheTokensOfPlainDecoding) {
  tell_fifty(7000 + 50 * GetParam(), {"gpt-oss", "gemma2", "gemma3", "gemma4"});
}

INSTANTIATE_TEST_SUITE_P(Fifties, StoriesOfWindows, ::testing::Range<uint64_t>(0, 8));

// Of models that fold what they know of a path, with states for one, two or three of the three requests at a time.
class StoriesOfHybrids : public ::testing::TestWithParam<uint64_t> {};

TEST_P(StoriesOfHybrids, GiveEveryRequestTheTokensOfPlainDecoding) {
  tell_fifty(9000 + 50 * GetParam(), {"qwen3next", "qwen35", "qwen35moe"});
}

INSTANTIATE_TEST_SUITE_P(Fifties, StoriesOfHybrids, ::testing::Range<uint64_t>(0, 20));

}  // namespace
}  // namespace sluice

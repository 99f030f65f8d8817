// The same promise for every family, weight type and KV type.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/harness.h"

namespace sluice {
namespace {

using namespace test;

struct Kind {
  const char* architecture;
  ggml_type type, embedding_type;
  bool tied;
  const char* rope_scaling;
  bool experts = false;
  std::string name() const {
    std::string name = std::string(architecture) + "_" + ggml_type_name(type) + "_" + ggml_type_name(embedding_type) +
                       (tied ? "_tied_" : "_") + rope_scaling + (experts ? "_experts" : "");
    std::ranges::replace(name, '-', '_');
    return name;
  }
};

class Families : public ::testing::TestWithParam<Kind> {};

TEST_P(Families, SpecPipeGivesTheTokensOfPlainDecoding) {
  const Kind& kind = GetParam();
  const TinyModelSpec dense{.architecture = kind.architecture,
                            .n_layers = 5,
                            .d_model = 256,
                            .n_heads = 4,
                            .n_kv_heads = 2,
                            .head_dim = 64,
                            .d_ff = 256,
                            .extra_tokens = 0,
                            .type = kind.type,
                            .embedding_type = kind.embedding_type,
                            .tied = kind.tied,
                            .weight_scale = 0.7f,
                            .output_scale = 8.0f,
                            .rope_scaling = kind.rope_scaling};
  const Opened& opened = open_tiny(kind.name(), kind.experts ? with_experts(dense, kind.architecture) : dense);
  int64_t hits = 0, flushes = 0;
  for (const KvType kv : {KvType::kF16, KvType::kF32, KvType::kQ8_0}) {
    for (const float temperature : {0.0f, 1.0f}) {
      RequestSpec spec;
      for (const char c : std::string("abcabcabcabcab")) spec.prompt.push_back(3 + c);
      spec.sampling = {.temperature = temperature, .seed = 3};
      spec.max_tokens = 24;
      spec.ignore_end = true;
      spec.method_options.width = 8;
      const auto expected = plain_decoding(opened, spec, kv);
      for (const int32_t stages : {1, 2, 5}) {
        const PipelineSpec setup{.stages = stages, .threads = stages == 2, .kv = kv};
        const auto engine = make_engine(opened, setup);
        const RequestId id = submit(*engine, spec);
        finish(*engine);
        EXPECT_EQ(answer(*engine, id), expected) << kind.name() << "; " << describe(setup) << "; " << describe(spec);
        hits += engine->request(id).stats.accepted;
        flushes += engine->request(id).stats.flushes;
      }
    }
  }
  EXPECT_GT(hits, 0) << kind.name();
  EXPECT_GT(flushes, 0) << kind.name();
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         ::testing::Values(Kind{"llama", GGML_TYPE_F32, GGML_TYPE_F32, false, "none"},
                                           Kind{"llama", GGML_TYPE_F16, GGML_TYPE_F16, false, "linear"},
                                           Kind{"llama", GGML_TYPE_BF16, GGML_TYPE_BF16, true, "none"},
                                           Kind{"llama", GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, true, "factors"},
                                           Kind{"llama", GGML_TYPE_Q4_0, GGML_TYPE_Q8_0, false, "none"},
                                           Kind{"llama", GGML_TYPE_Q4_1, GGML_TYPE_Q8_0, true, "none"},
                                           Kind{"qwen2", GGML_TYPE_Q4_K, GGML_TYPE_Q6_K, true, "none"},
                                           Kind{"qwen2", GGML_TYPE_Q5_K, GGML_TYPE_Q8_0, false, "yarn"},
                                           Kind{"qwen2", GGML_TYPE_Q4_1, GGML_TYPE_F16, false, "none"},
                                           Kind{"qwen3", GGML_TYPE_Q6_K, GGML_TYPE_Q6_K, true, "none"},
                                           Kind{"llama", GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, true, "none"},
                                           Kind{"qwen3", GGML_TYPE_BF16, GGML_TYPE_F32, false, "none"},
                                           Kind{"qwen3", GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, false, "none"},
                                           Kind{"llama", GGML_TYPE_Q4_0, GGML_TYPE_Q8_0, false, "none", true},
                                           Kind{"qwen2moe", GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, false, "none", true},
                                           Kind{"qwen3moe", GGML_TYPE_F16, GGML_TYPE_F16, true, "yarn", true},
                                           Kind{"glm4moe", GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, false, "none", true},
                                           Kind{"gpt-oss", GGML_TYPE_MXFP4, GGML_TYPE_Q8_0, false, "yarn", true},
                                           Kind{"deepseek2", GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, false, "yarn", true},
                                           Kind{"gemma", GGML_TYPE_Q4_0, GGML_TYPE_Q8_0, true, "none"},
                                           Kind{"gemma2", GGML_TYPE_Q4_K, GGML_TYPE_Q6_K, true, "none"},
                                           Kind{"gemma3", GGML_TYPE_Q4_0, GGML_TYPE_F16, true, "linear"},
                                           Kind{"gemma4", GGML_TYPE_Q4_K, GGML_TYPE_Q6_K, true, "none"},
                                           Kind{"gemma4", GGML_TYPE_Q8_0, GGML_TYPE_F16, true, "linear", true},
                                           Kind{"qwen3moe", GGML_TYPE_Q4_1, GGML_TYPE_Q8_0, false, "none", true}),
                         [](const auto& kind) { return kind.param.name(); });

}  // namespace
}  // namespace sluice

#include "model/model_file.h"

#include <dlfcn.h>
#include <gguf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>

#include "support/tiny_model.h"

// The program's own logarithms stand before libm's, so that a test can tell whether they were asked.
namespace {
int logarithms_asked = 0;

template <class T>
T ask_libm(const char* name, T x) {
  ++logarithms_asked;
  return reinterpret_cast<T (*)(T)>(::dlsym(RTLD_NEXT, name))(x);
}
}  // namespace
extern "C" float logf(float x) { return ask_libm("logf", x); }
extern "C" double log(double x) { return ask_libm("log", x); }

namespace sluice {
namespace {

using test::temp_path;
using test::TinyModelSpec;
using test::write_tiny_model;

ModelFile open_ok(const std::string& path) {
  auto model = ModelFile::open(path);
  if (!model) throw std::runtime_error(model.error().message);
  return std::move(*model);
}

std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A tensor's bytes as ggml's own reader finds them.
std::string bytes_by_ggml(const std::string& path, const std::string& name) {
  const std::unique_ptr<gguf_context, decltype(&gguf_free)> file(gguf_init_from_file(path.c_str(), {true, nullptr}),
                                                                 &gguf_free);
  const int64_t i = gguf_find_tensor(file.get(), name.c_str());
  const size_t begin = gguf_get_data_offset(file.get()) + gguf_get_tensor_offset(file.get(), i);
  return file_bytes(path).substr(begin, gguf_get_tensor_size(file.get(), i));
}

std::string bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.data), tensor.row_bytes * static_cast<size_t>(tensor.ne[1])};
}

// Bytes of this process's memory that `path` is mapped into.
size_t mapped_bytes(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  size_t total = 0;
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with(path)) continue;
    unsigned long begin = 0, end = 0;
    std::sscanf(line.c_str(), "%lx-%lx", &begin, &end);
    total += end - begin;
  }
  return total;
}

// Which bits a libm gives for a logarithm is its own affair.
TEST(ModelFile, YarnAsksNoLibmForItsMagnitude) {
  const std::string path = write_tiny_model({.rope_scaling = "yarn"}, temp_path("yarn-magnitude.gguf"));
  logarithms_asked = 0;
  const RopeParameters rope = ModelFile::open(path).value().hparams().rope;
  EXPECT_EQ(logarithms_asked, 0);
  const float magnitude = 1.0f + 0.1f * 1.38629436f;  // ln 4
  EXPECT_EQ(rope.attention_factor, magnitude * (1.0f / magnitude));
}

TEST(ModelFile, ReadsTheHyperparametersOfEveryFamily) {
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    SCOPED_TRACE(architecture);
    TinyModelSpec spec;
    spec.architecture = architecture;
    const ModelFile model = open_ok(write_tiny_model(spec, temp_path("family.gguf")));
    const HyperParameters& h = model.hparams();
    EXPECT_EQ(h.architecture, architecture);
    EXPECT_EQ(h.name, "tiny-" + architecture);
    EXPECT_EQ(h.n_layers, 4);
    EXPECT_EQ(h.d_model, 64);
    EXPECT_EQ(h.n_heads, 4);
    EXPECT_EQ(h.n_kv_heads, 2);
    EXPECT_EQ(h.head_dim, 16);
    EXPECT_EQ(h.d_ff, 96);
    EXPECT_EQ(h.n_vocab, 259 + 64);
    EXPECT_EQ(h.context_length, 4096);
    EXPECT_FLOAT_EQ(h.norm_epsilon, 1e-5f);
    EXPECT_EQ(h.rope.n_dims, 16);
    EXPECT_EQ(h.rope.pairing,
              architecture == "llama" ? RopeParameters::Pairing::kAdjacent : RopeParameters::Pairing::kHalves);
    EXPECT_EQ(model.general_type(), "F32");
    EXPECT_FALSE(model.tied_head());
  }
}

TEST(ModelFile, GivesEachFamilyItsTensors) {
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    SCOPED_TRACE(architecture);
    TinyModelSpec spec;
    spec.architecture = architecture;
    const ModelFile model = open_ok(write_tiny_model(spec, temp_path("tensors.gguf")));
    const StageWeights weights = model.map({0, 4}, true, true).value();
    ASSERT_EQ(weights.layers.size(), 4u);
    for (const LayerWeights& layer : weights.layers) {
      EXPECT_TRUE(layer.attention_norm && layer.q && layer.k && layer.v && layer.attention_out && layer.ffn_norm);
      EXPECT_TRUE(layer.gate && layer.up && layer.down);
      EXPECT_EQ(static_cast<bool>(layer.q_bias), architecture == "qwen2");
      EXPECT_EQ(static_cast<bool>(layer.q_norm), architecture == "qwen3");
      EXPECT_EQ(layer.down.ne[0], 96);
      EXPECT_EQ(layer.down.ne[1], 64);
      EXPECT_EQ(layer.down.row_bytes, 96 * sizeof(float));
    }
    EXPECT_TRUE(weights.token_embedding && weights.output_norm && weights.output);
    EXPECT_FALSE(weights.rope_factors);
  }
}

TEST(ModelFile, FindsTheSameBytesAsGgmlInEveryWeightType) {
  for (const ggml_type type :
       {GGML_TYPE_F32,  GGML_TYPE_F16,  GGML_TYPE_BF16,   GGML_TYPE_Q4_0,   GGML_TYPE_Q4_1,  GGML_TYPE_Q5_0,
        GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, GGML_TYPE_IQ4_NL, GGML_TYPE_MXFP4,  GGML_TYPE_Q2_K,  GGML_TYPE_Q3_K,
        GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K,   GGML_TYPE_IQ4_XS, GGML_TYPE_TQ1_0, GGML_TYPE_TQ2_0,
        GGML_TYPE_Q1_0, GGML_TYPE_Q2_0, GGML_TYPE_NVFP4}) {
    SCOPED_TRACE(ggml_type_name(type));
    TinyModelSpec spec;
    spec.type = type;
    spec.n_layers = 2;
    if (ggml_blck_size(type) > 32) spec.d_model = spec.d_ff = 256, spec.head_dim = 64;
    const std::string path = write_tiny_model(spec, temp_path("type.gguf"));
    const StageWeights weights = open_ok(path).map({1, 2}, true, true).value();
    EXPECT_EQ(weights.layers[0].up.type, type);
    EXPECT_EQ(bytes_of(weights.layers[0].up), bytes_by_ggml(path, "blk.1.ffn_up.weight"));
    EXPECT_EQ(bytes_of(weights.output), bytes_by_ggml(path, "output.weight"));
    EXPECT_EQ(bytes_of(weights.token_embedding), bytes_by_ggml(path, "token_embd.weight"));
  }
}

TEST(ModelFile, ATiedHeadIsTheTokenEmbedding) {
  TinyModelSpec spec;
  spec.tied = true;
  const std::string path = write_tiny_model(spec, temp_path("tied.gguf"));
  const ModelFile model = open_ok(path);
  EXPECT_TRUE(model.tied_head());
  EXPECT_EQ(model.head_bytes(), bytes_by_ggml(path, "token_embd.weight").size());
  const StageWeights weights = model.map({0, 0}, false, true).value();
  EXPECT_FALSE(weights.token_embedding);
  EXPECT_EQ(bytes_of(weights.output), bytes_by_ggml(path, "token_embd.weight"));
}

TEST(ModelFile, RopeScalingIsWhatLlamaCppDerives) {
  const auto rope = [](const std::string& scaling) {
    TinyModelSpec spec;
    spec.rope_scaling = scaling;
    return open_ok(write_tiny_model(spec, temp_path("rope.gguf"))).hparams().rope;
  };
  const RopeParameters none = rope("none"), linear = rope("linear"), yarn = rope("yarn");
  EXPECT_EQ(none.scaling, RopeParameters::Scaling::kNone);
  EXPECT_EQ(none.factor, 1.0f);
  EXPECT_EQ(none.extrapolation_mix, 0.0f);
  EXPECT_EQ(linear.scaling, RopeParameters::Scaling::kLinear);
  EXPECT_EQ(linear.factor, 4.0f);
  EXPECT_EQ(linear.extrapolation_mix, 0.0f);
  EXPECT_EQ(yarn.scaling, RopeParameters::Scaling::kYarn);
  EXPECT_EQ(yarn.factor, 4.0f);
  EXPECT_EQ(yarn.original_context, 1024);
  EXPECT_EQ(yarn.extrapolation_mix, 1.0f);
  EXPECT_NEAR(yarn.attention_factor, 1.0f, 1e-6f);  // the rotation itself multiplies by 1 + 0.1 ln 4
  EXPECT_EQ(yarn.beta_fast, 32.0f);
  EXPECT_EQ(yarn.beta_slow, 1.0f);
}

TEST(ModelFile, RopeFactorsComeWithEveryStageThatHasLayers) {
  TinyModelSpec spec;
  spec.rope_scaling = "factors";
  const ModelFile model = open_ok(write_tiny_model(spec, temp_path("factors.gguf")));
  const StageWeights last = model.map({3, 4}, false, true).value();
  EXPECT_TRUE(last.rope_factors);
  EXPECT_EQ(last.rope_factors.ne[0], 8);
  EXPECT_FALSE(model.map({0, 0}, true, false).value().rope_factors);
}

TEST(ModelFile, AllShardsAreFoundByTheNameOfAny) {
  TinyModelSpec spec;
  const std::string whole = write_tiny_model(spec, temp_path("whole.gguf"));
  spec.shards = 3;
  write_tiny_model(spec, temp_path("cut.gguf"));
  for (const char* shard : {"cut-00001-of-00003.gguf", "cut-00002-of-00003.gguf", "cut-00003-of-00003.gguf"}) {
    const ModelFile model = open_ok(temp_path(shard));
    EXPECT_EQ(model.path(), temp_path("cut-00001-of-00003.gguf"));
    const StageWeights weights = model.map({0, 4}, true, true).value();
    EXPECT_EQ(bytes_of(weights.token_embedding), bytes_by_ggml(whole, "token_embd.weight"));
    EXPECT_EQ(bytes_of(weights.layers[2].v), bytes_by_ggml(whole, "blk.2.attn_v.weight"));
    EXPECT_EQ(bytes_of(weights.output), bytes_by_ggml(whole, "output.weight"));
  }
}

TEST(ModelFile, MapsOnlyThePagesOfTheStage) {
  TinyModelSpec spec;
  spec.d_model = spec.d_ff = 256;
  spec.head_dim = 64;
  const std::string path = write_tiny_model(spec, temp_path("pages.gguf"));
  const ModelFile model = open_ok(path);
  EXPECT_EQ(mapped_bytes(path), 0u) << "reading the header leaves nothing behind";
  {
    const StageWeights stage = model.map({1, 2}, false, false).value();
    EXPECT_GE(mapped_bytes(path), model.layer_bytes(1));
    EXPECT_LE(mapped_bytes(path), model.layer_bytes(1) + 4 * 4096);
    EXPECT_FALSE(stage.token_embedding || stage.output || stage.output_norm);
  }
  EXPECT_EQ(mapped_bytes(path), 0u);
}

TEST(ModelFile, ReleasedTensorsKeepTheirValues) {
  TinyModelSpec spec;
  spec.d_model = spec.d_ff = 256;
  spec.head_dim = 64;
  const std::string path = write_tiny_model(spec, temp_path("release.gguf"));
  const StageWeights stage = open_ok(path).map({0, 4}, true, true).value();
  const std::string before = bytes_of(stage.layers[1].gate);
  stage.release(stage.layers[1].gate);
  stage.release(Tensor{});
  EXPECT_EQ(bytes_of(stage.layers[1].gate), before);
}

TEST(ModelFile, WeightsOutliveTheModel) {
  const std::string path = write_tiny_model({}, temp_path("outlive.gguf"));
  const auto weights = [&] { return open_ok(path).map({0, 1}, false, false).value(); }();
  EXPECT_EQ(bytes_of(weights.layers[0].q), bytes_by_ggml(path, "blk.0.attn_q.weight"));
}

TEST(ModelFile, CountsParametersAndBytes) {
  const ModelFile model = open_ok(write_tiny_model({}, temp_path("count.gguf")));
  const int64_t layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96 + 2 * 64, vocab = 323 * 64;
  EXPECT_EQ(model.layer_bytes(0), static_cast<uint64_t>(layer) * 4);
  EXPECT_EQ(model.head_bytes(), static_cast<uint64_t>(vocab) * 4);
  EXPECT_EQ(model.parameter_count(), 4 * layer + 2 * vocab + 64);
  EXPECT_EQ(model.tensors().size(), 4u * 9 + 3);
}

TEST(ModelFile, MetadataIsShortEnoughToShow) {
  TinyModelSpec spec;
  spec.chat_template = std::string(5000, 'x') + "\n\x01 end";
  const ModelFile model = open_ok(write_tiny_model(spec, temp_path("metadata.gguf")));
  EXPECT_EQ(model.chat_template(), spec.chat_template);
  for (const MetadataEntry& entry : model.metadata()) {
    EXPECT_LE(entry.value.size(), 100u) << entry.key;
    EXPECT_TRUE(std::ranges::none_of(entry.value, [](unsigned char c) { return c < 32; })) << entry.key;
  }
}

TEST(ModelFile, ReadsTheDefaultModel) {
  const std::string path = test::default_model_path();
  if (path.empty()) GTEST_SKIP() << "the default model is not installed";
  const ModelFile model = open_ok(path);
  EXPECT_EQ(model.hparams().architecture, "llama");
  EXPECT_EQ(model.hparams().n_layers, 30);
  EXPECT_EQ(model.hparams().d_model, 576);
  EXPECT_EQ(model.hparams().n_vocab, 49152);
  EXPECT_TRUE(model.tied_head());
  EXPECT_EQ(model.general_type(), "Q4_1 mostly");
  EXPECT_EQ(model.parameter_count(), 134515008);
}

}  // namespace
}  // namespace sluice

// What a model file must satisfy: each way to fall short gives an error that names it.
#include <gguf.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "model/model_file.h"
#include "support/tiny_model.h"
#include "support/tiny_vocabulary.h"

namespace sluice {
namespace {

using test::of_family;
using test::sharing_model;
using test::temp_path;
using test::TinyModelSpec;
using test::with_experts;
using test::write_tiny_model;

std::string error_of(const std::string& path) {
  const auto model = ModelFile::open(path);
  if (model) return "(no error)";
  EXPECT_EQ(model.error().kind, ErrorKind::kInput);
  EXPECT_EQ(model.error().message.find('\n'), std::string::npos);
  EXPECT_NE(model.error().message.find(path), std::string::npos)
      << "an error names the file: " << model.error().message;
  return model.error().message;
}

std::string error_of(const TinyModelSpec& spec) { return error_of(write_tiny_model(spec, temp_path("broken.gguf"))); }

struct Case {
  const char* said;  // a part of the error
  std::function<void(gguf_context*)> edit;
};

void expect_errors(const TinyModelSpec& base, const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    TinyModelSpec spec = base;
    spec.edit_metadata = c.edit;
    EXPECT_NE(error_of(spec).find(c.said), std::string::npos) << error_of(spec) << "\n  should say: " << c.said;
  }
}

void set_u32(gguf_context* f, const char* key, uint32_t value) { gguf_set_val_u32(f, key, value); }
void set_f32(gguf_context* f, const char* key, float value) { gguf_set_val_f32(f, key, value); }
void set_str(gguf_context* f, const char* key, const char* value) { gguf_set_val_str(f, key, value); }
void set_strings(gguf_context* f, const char* key, const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  gguf_set_arr_str(f, key, pointers.data(), pointers.size());
}

TEST(ModelErrors, HyperparametersThatMakeNoSense) {
  const char* eps = "llama.attention.layer_norm_rms_epsilon";
  expect_errors(
      {},
      {{"block_count' is missing", [](auto* f) { gguf_remove_key(f, "llama.block_count"); }},
       {"block_count' is 0", [](auto* f) { set_u32(f, "llama.block_count", 0); }},
       {"block_count' is 4000000000", [](auto* f) { set_u32(f, "llama.block_count", 4000000000u); }},
       {"block_count' has type f32; it should be u32", [](auto* f) { set_f32(f, "llama.block_count", 4); }},
       {"'blk.4.attn_norm.weight' is missing", [](auto* f) { set_u32(f, "llama.block_count", 5); }},
       {"'blk.3.", [](auto* f) { set_u32(f, "llama.block_count", 3); }},
       {"is 64 x 323", [](auto* f) { set_u32(f, "llama.embedding_length", 128); }},
       {"attention.head_count' is 0", [](auto* f) { set_u32(f, "llama.attention.head_count", 0); }},
       {"should divide", [](auto* f) { set_u32(f, "llama.attention.head_count_kv", 3); }},
       {"an even number",
        [](auto* f) { set_u32(f, "llama.attention.key_length", 15), set_u32(f, "llama.attention.value_length", 15); }},
       {"differs from attention.key_length", [](auto* f) { set_u32(f, "llama.attention.value_length", 32); }},
       {"rope.dimension_count' should be", [](auto* f) { set_u32(f, "llama.rope.dimension_count", 8); }},
       {"rope.freq_base' is not a finite", [](auto* f) { set_f32(f, "llama.rope.freq_base", NAN); }},
       {"rope.freq_base' should be above", [](auto* f) { set_f32(f, "llama.rope.freq_base", -1); }},
       {"epsilon' is missing", [=](auto* f) { gguf_remove_key(f, eps); }},
       {"epsilon' should be above 0", [=](auto* f) { set_f32(f, eps, 0); }},
       {"epsilon' is not a finite", [=](auto* f) { set_f32(f, eps, INFINITY); }},
       {"context_length' is 0", [](auto* f) { set_u32(f, "llama.context_length", 0); }},
       {"feed_forward_length' differs from layer to layer", [](auto* f) {
          const uint32_t lengths[] = {96, 96, 96, 128};
          gguf_set_arr_data(f, "llama.feed_forward_length", GGUF_TYPE_UINT32, lengths, 4);
        }}});
}

TEST(ModelErrors, WhatIsNotComputed) {
  expect_errors(
      {}, {{"architecture 'mamba' is not supported", [](auto* f) { set_str(f, "general.architecture", "mamba"); }},
           {"general.architecture' is missing", [](auto* f) { gguf_remove_key(f, "general.architecture"); }},
           {"expert_used_count' asks for a mixture", [](auto* f) { set_u32(f, "llama.expert_used_count", 2); }},
           {"scaled logits", [](auto* f) { set_f32(f, "llama.logit_scale", 0.5f); }},
           {"scaled embeddings", [](auto* f) { set_f32(f, "llama.embedding_scale", 12); }},
           {"an attention scale", [](auto* f) { set_f32(f, "llama.attention.scale", 0.1f); }},
           {"attention to later tokens", [](auto* f) { gguf_set_val_bool(f, "llama.attention.causal", false); }},
           {"is 'longrope'", [](auto* f) { set_str(f, "llama.rope.scaling.type", "longrope"); }},
           {"other YaRN frequencies", [](auto* f) { set_f32(f, "llama.rope.scaling.yarn_beta_fast", 16); }},
           {"rope.scaling.factor' should be", [](auto* f) { set_f32(f, "llama.rope.scaling.factor", -2); }}});
}

TEST(ModelErrors, ExpertsThatMakeNoSense) {
  expect_errors({}, {{"expert_used_count' is missing", [](auto* f) { set_u32(f, "llama.expert_count", 8); }}});
  expect_errors(
      with_experts({}, "qwen3moe"),
      {{"expert_count' is 0", [](auto* f) { set_u32(f, "qwen3moe.expert_count", 0); }},
       {"expert_count' is 2147483648", [](auto* f) { set_u32(f, "qwen3moe.expert_count", 1u << 31); }},
       {"expert_count' is missing", [](auto* f) { gguf_remove_key(f, "qwen3moe.expert_count"); }},
       {"is 64 x 5; by the hyperparameters it should be 64 x 6",
        [](auto* f) { set_u32(f, "qwen3moe.expert_count", 6); }},
       {"expert_used_count' is 0", [](auto* f) { set_u32(f, "qwen3moe.expert_used_count", 0); }},
       {"expert_used_count' is more than", [](auto* f) { set_u32(f, "qwen3moe.expert_used_count", 6); }},
       {"is 64 x 48 x 5; by the hyperparameters it should be 64 x 32 x 5",
        [](auto* f) { set_u32(f, "qwen3moe.expert_feed_forward_length", 32); }},
       {"another choice of experts", [](auto* f) { set_u32(f, "qwen3moe.expert_gating_func", 2); }},
       {"groups of experts", [](auto* f) { set_u32(f, "qwen3moe.expert_group_count", 2); }},
       {"expert_weights_scale' is not a finite", [](auto* f) { set_f32(f, "qwen3moe.expert_weights_scale", NAN); }},
       {"a shared expert", [](auto* f) { set_u32(f, "qwen3moe.expert_shared_feed_forward_length", 64); }}});
  expect_errors(
      with_experts({}, "glm4moe"),
      {{"expert_shared_count' is 0", [](auto* f) { set_u32(f, "glm4moe.expert_shared_count", 0); }},
       {"expert_shared_count' is too large",
        [](auto* f) {
          set_u32(f, "glm4moe.expert_shared_count", 512), set_u32(f, "glm4moe.expert_feed_forward_length", 1u << 20);
        }},
       {"nextn_predict_layers' should be less", [](auto* f) { set_u32(f, "glm4moe.nextn_predict_layers", 5); }},
       {"nextn_predict_layers' is 2147483648", [](auto* f) { set_u32(f, "glm4moe.nextn_predict_layers", 1u << 31); }},
       {"leading_dense_block_count' is 6", [](auto* f) { set_u32(f, "glm4moe.leading_dense_block_count", 6); }},
       {"another choice of experts", [](auto* f) { set_u32(f, "glm4moe.expert_gating_func", 1); }},
       {"should be the size of a head", [](auto* f) { set_u32(f, "glm4moe.rope.dimension_count", 32); }},
       {"'blk.4.",
        [](auto* f) { set_u32(f, "glm4moe.block_count", 4), set_u32(f, "glm4moe.nextn_predict_layers", 0); }}});
  expect_errors(
      with_experts({}, "gpt-oss"),
      {{"sliding_window' is 0", [](auto* f) { set_u32(f, "gpt-oss.attention.sliding_window", 0); }},
       {"sliding_window' is missing", [](auto* f) { gguf_remove_key(f, "gpt-oss.attention.sliding_window"); }},
       {"should have one flag a layer",
        [](auto* f) {
          const bool flags[] = {true, false, true};
          gguf_set_arr_data(f, "gpt-oss.attention.sliding_window_pattern", GGUF_TYPE_BOOL, flags, 3);
        }},
       {"should be a u32 or an array of bools",
        [](auto* f) {
          const float flags[] = {1, 1, 0, 1};
          gguf_set_arr_data(f, "gpt-oss.attention.sliding_window_pattern", GGUF_TYPE_FLOAT32, flags, 4);
        }},
       {"rope.freq_base_swa' should be above 1", [](auto* f) { set_f32(f, "gpt-oss.rope.freq_base_swa", 0.5f); }}});
  expect_errors(with_experts({}, "qwen2moe"), {{"expert_shared_feed_forward_length' is 4294967295", [](auto* f) {
                                                  set_u32(f, "qwen2moe.expert_shared_feed_forward_length", UINT32_MAX);
                                                }}});
}

TEST(ModelErrors, LatentsThatMakeNoSense) {
  expect_errors(
      with_experts({}, "deepseek2"),
      {{"kv_lora_rank' is missing", [](auto* f) { gguf_remove_key(f, "deepseek2.attention.kv_lora_rank"); }},
       {"kv_lora_rank' is 2147483648", [](auto* f) { set_u32(f, "deepseek2.attention.kv_lora_rank", 1u << 31); }},
       {"and rope.dimension_count should add up",
        [](auto* f) { set_u32(f, "deepseek2.attention.kv_lora_rank", 1024); }},
       {"is 64 x 32; by the hyperparameters it should be 64 x 16",
        [](auto* f) { set_u32(f, "deepseek2.attention.q_lora_rank", 16); }},
       {"key_length_mla' is missing: the file is of an older llama.cpp",
        [](auto* f) { gguf_remove_key(f, "deepseek2.attention.key_length_mla"); }},
       {"key_length_mla' should be more", [](auto* f) { set_u32(f, "deepseek2.attention.key_length_mla", 8); }},
       {"value_length_mla' is 0", [](auto* f) { set_u32(f, "deepseek2.attention.value_length_mla", 0); }},
       {"head_count_kv' is 2", [](auto* f) { set_u32(f, "deepseek2.attention.head_count_kv", 2); }},
       {"temperature_scale' asks for", [](auto* f) { set_f32(f, "deepseek2.attention.temperature_scale", 1); }},
       {"gives scores that are no numbers",
        [](auto* f) {
          set_f32(f, "deepseek2.rope.scaling.yarn_log_multiplier", 1e30f);
          set_f32(f, "deepseek2.rope.scaling.factor", 40);
        }},
       {"should divide expert_count", [](auto* f) { set_u32(f, "deepseek2.expert_group_count", 3); }},
       {"should divide expert_count", [](auto* f) { set_u32(f, "deepseek2.expert_group_count", 8); }},
       {"expert_group_used_count' is 5", [](auto* f) { set_u32(f, "deepseek2.expert_group_used_count", 5); }},
       {"is more than the groups",
        [](auto* f) {
          set_u32(f, "deepseek2.expert_group_used_count", 1), set_u32(f, "deepseek2.expert_used_count", 3);
        }},
       {"expert_gating_func' is 3", [](auto* f) { set_u32(f, "deepseek2.expert_gating_func", 3); }}});
}

TEST(ModelErrors, CapsThatMakeNoSense) {
  expect_errors(
      of_family({}, "gemma2"),
      {{"attn_logit_softcapping' should not be below 0",
        [](auto* f) { set_f32(f, "gemma2.attn_logit_softcapping", -1); }},
       {"final_logit_softcapping' is not a finite", [](auto* f) { set_f32(f, "gemma2.final_logit_softcapping", NAN); }},
       {"sliding_window' is 0", [](auto* f) { set_u32(f, "gemma2.attention.sliding_window", 0); }}});
}

TEST(ModelErrors, HybridsThatMakeNoSense) {
  const auto set = [](const char* key, uint32_t value) {
    return [key = std::string("qwen35.") + key, value](gguf_context* f) { set_u32(f, key.c_str(), value); };
  };
  const auto sections = [](std::vector<int32_t> values) {
    return [values](gguf_context* f) {
      gguf_set_arr_data(f, "qwen35.rope.dimension_sections", GGUF_TYPE_INT32, values.data(), values.size());
    };
  };
  expect_errors(
      of_family({}, "qwen35"),
      {{"ssm.state_size' is 0", set("ssm.state_size", 0)},
       {"ssm.state_size' is 2147483648", set("ssm.state_size", 1u << 31)},
       {"ssm.state_size' should be a multiple of 8", set("ssm.state_size", 12)},
       {"ssm.group_count' is 0", set("ssm.group_count", 0)},
       {"ssm.group_count' should divide ssm.time_step_rank", set("ssm.group_count", 3)},
       {"ssm.time_step_rank' is 4294967295", set("ssm.time_step_rank", 0xFFFFFFFF)},
       {"ssm.inner_size' should be ssm.time_step_rank times", set("ssm.inner_size", 128)},
       {"ssm.inner_size' should be", set("ssm.time_step_rank", 1u << 24)},
       {"ssm.conv_kernel' is 1;", set("ssm.conv_kernel", 1)},
       {"ssm.conv_kernel' is 33;", set("ssm.conv_kernel", 33)},
       {"full_attention_interval' is 0", set("full_attention_interval", 0)},
       {"ssm.inner_size' is missing", [](auto* f) { gguf_remove_key(f, "qwen35.ssm.inner_size"); }},
       {"leaves pairs to a fourth coordinate", sections({2, 1, 0, 1})},
       {"leaves pairs to a fourth coordinate", sections({1, 3, 0, 0})},
       {"dimension_sections' are all 0", sections({0, 0, 0, 0})},
       {"dimension_sections' has 3 numbers", sections({2, 1, 1})},
       {"dimension_sections' is missing", [](auto* f) { gguf_remove_key(f, "qwen35.rope.dimension_sections"); }},
       {"attention.recurrent_layers' should have one flag a layer", [](auto* f) {
          const bool flags[] = {true, false};
          gguf_set_arr_data(f, "qwen35.attention.recurrent_layers", GGUF_TYPE_BOOL, flags, 2);
        }}});
}

TEST(ModelFile, GatedDeltaNetsAreInTheLayersThatTheFileNames) {
  const auto layers = [](const TinyModelSpec& spec) {
    const auto model = ModelFile::open(write_tiny_model(spec, temp_path("hybrid.gguf")));
    EXPECT_TRUE(model) << model.error().message;
    std::vector<bool> is_delta;
    for (int32_t l = 0; l < model->hparams().n_layers; ++l) is_delta.push_back(model->hparams().delta.is_in(l));
    for (int32_t l = 0; l < model->hparams().n_layers; ++l)
      EXPECT_EQ(model->hparams().values_of_cell(l) == 0, is_delta[static_cast<size_t>(l)]);
    return is_delta;
  };
  TinyModelSpec spec = of_family({}, "qwen35");
  EXPECT_EQ(layers(spec), (std::vector{true, true, false, true}));
  spec.edit_metadata = [](gguf_context* f) {
    const bool flags[] = {true, true, false, true, false};  // the last is the layer behind the others
    gguf_set_arr_data(f, "qwen35.attention.recurrent_layers", GGUF_TYPE_BOOL, flags, 5);
    set_u32(f, "qwen35.full_attention_interval", 2);
  };
  EXPECT_EQ(layers(spec), (std::vector{true, true, false, true}));
}

TEST(ModelErrors, Gemma4ThatMakesNoSense) {
  const auto set = [](const char* key, uint32_t value) {
    return [key = std::string("gemma4.") + key, value](gguf_context* f) { set_u32(f, key.c_str(), value); };
  };
  const auto set_all = [](const char* key, std::vector<uint32_t> values) {
    return [key = std::string("gemma4.") + key, values](gguf_context* f) {
      gguf_set_arr_data(f, key.c_str(), GGUF_TYPE_UINT32, values.data(), values.size());
    };
  };
  const auto remove = [](const char* key) {
    return [key = std::string("gemma4.") + key](gguf_context* f) { gguf_remove_key(f, key.c_str()); };
  };
  expect_errors(
      sharing_model({}),
      {{"sliding_window_pattern' is missing", remove("attention.sliding_window_pattern")},
       {"sliding_window' is 0", set("attention.sliding_window", 0)},
       {"key_length_swa' is missing", remove("attention.key_length_swa")},
       {"key_length_swa' gives heads of 15",
        [&](gguf_context* f) { set("attention.key_length_swa", 15)(f), set("attention.value_length_swa", 15)(f); }},
       {"value_length_swa' differs", set("attention.value_length_swa", 32)},
       {"value_length' differs", set("attention.value_length", 16)},
       {"head_count_kv' differs among layers", set_all("attention.head_count_kv", {2, 4, 1, 2, 2, 1, 2, 2, 1})},
       {"head_count_kv' should divide", set_all("attention.head_count_kv", {3, 3, 1, 3, 3, 1, 3, 3, 1})},
       {"head_count_kv' is 0", set_all("attention.head_count_kv", {2, 2, 0, 2, 2, 0, 2, 2, 0})},
       {"head_count_kv' should have one number a layer", set_all("attention.head_count_kv", {2, 2})},
       {"shared_kv_layers' is 10;", set("attention.shared_kv_layers", 10)},
       {"shared_kv_layers' should leave two layers", set("attention.shared_kv_layers", 8)},
       {"has layer 7 read keys and values of layer 5, of which only one", set("attention.shared_kv_layers", 2)},
       {"embedding_length_per_layer_input' is missing", remove("embedding_length_per_layer_input")},
       {"embedding_length_per_layer_input' is 4294967295", set("embedding_length_per_layer_input", UINT32_MAX)},
       {"tensor 'per_layer_token_embd.weight' is 576 x", set("embedding_length_per_layer_input", 32)},
       {"feed_forward_length' is 0", set_all("feed_forward_length", {96, 96, 96, 0, 96, 96, 192, 192, 192})},
       {"by the hyperparameters it should be 64 x 128", set("feed_forward_length", 128)},
       {"rope.dimension_count' should be the size", set("rope.dimension_count", 16)},
       {"rope.dimension_count_swa' should be an even number", set("rope.dimension_count_swa", 18)},
       {"rope.dimension_count_swa' should be an even number", set("rope.dimension_count_swa", 7)},
       {"rope.scaling.type' is yarn",
        [](auto* f) {
          set_str(f, "gemma4.rope.scaling.type", "yarn");
          set_f32(f, "gemma4.rope.scaling.factor", 4);
        }},
       {"final_logit_softcapping' should not be", [](auto* f) { set_f32(f, "gemma4.final_logit_softcapping", -1); }},
       {"another choice of experts", [](auto* f) {
          set_u32(f, "gemma4.expert_count", 4);
          set_u32(f, "gemma4.expert_used_count", 2);
          set_u32(f, "gemma4.expert_feed_forward_length", 48);
          set_u32(f, "gemma4.expert_gating_func", 2);
        }}});
  expect_errors(with_experts({}, "gemma4"),
                {{"expert_feed_forward_length' is missing", remove("expert_feed_forward_length")},
                 {"expert_used_count' is more than", set("expert_used_count", 6)},
                 {"scaled experts", [](auto* f) { set_f32(f, "gemma4.expert_weights_scale", 2.5f); }},
                 {"a shared expert", set("expert_shared_count", 1)}});
  TinyModelSpec broken = with_experts({}, "gemma4");
  broken.without_tensors = {"blk.1.ffn_gate_up_exps.weight"};
  EXPECT_NE(error_of(broken).find("tensor 'blk.1.ffn_gate_exps.weight' is missing"), std::string::npos);
  broken.without_tensors = {"rope_freqs.weight"};
  EXPECT_NE(error_of(broken).find("tensor 'rope_freqs.weight' is missing"), std::string::npos);
}

TEST(ModelFile, TheLastLayersOfGemma4ReadKeysOfTheLastOfTheirKindThatHasItsOwn) {
  const auto model = ModelFile::open(write_tiny_model(sharing_model({}), temp_path("sharing.gguf")));
  ASSERT_TRUE(model) << model.error().message;
  const HyperParameters& h = model->hparams();
  std::vector<int32_t> read, parted;
  for (int32_t l = 0; l < h.n_layers; ++l) read.push_back(h.kv_layer_of(l)), parted.push_back(h.parted_by(l));
  EXPECT_EQ(read, (std::vector{0, 1, 2, 3, 4, 5, 4, 4, 5}));
  EXPECT_EQ(parted, (std::vector{-1, -1, -1, -1, -1, 6, 6, 7, 8}));
  EXPECT_EQ(h.values_of_cell(), 4 * 2 * 2 * 16 + 2 * 2 * 1 * 32);
}

// A pattern says the same by a period or layer by layer; Gemma 3 without a window sees everything.
TEST(ModelFile, WindowsAreInTheLayersThatTheFileNames) {
  const auto windows = [](const TinyModelSpec& spec) {
    const auto model = ModelFile::open(write_tiny_model(spec, temp_path("windows.gguf")));
    EXPECT_TRUE(model) << model.error().message;
    std::vector<int32_t> seen;
    for (int32_t l = 0; l < model->hparams().n_layers; ++l) seen.push_back(model->hparams().window_of(l));
    return seen;
  };
  TinyModelSpec spec = of_family({}, "gemma3");
  EXPECT_EQ(windows(spec), (std::vector{24, 24, 0, 24}));
  spec.edit_metadata = [](gguf_context* f) {
    const bool flags[] = {false, true, true, false};
    gguf_set_arr_data(f, "gemma3.attention.sliding_window_pattern", GGUF_TYPE_BOOL, flags, 4);
  };
  EXPECT_EQ(windows(spec), (std::vector{0, 24, 24, 0}));
  spec.edit_metadata = [](gguf_context* f) { set_u32(f, "gemma3.attention.sliding_window_pattern", 0); };
  EXPECT_EQ(windows(spec), (std::vector{24, 24, 24, 24}));
  spec.edit_metadata = [](gguf_context* f) { gguf_remove_key(f, "gemma3.attention.sliding_window"); };
  EXPECT_EQ(windows(spec), (std::vector{0, 0, 0, 0}));
  EXPECT_EQ(windows(of_family({}, "gemma2")), (std::vector{24, 0, 24, 0}));
}

TEST(ModelErrors, BiasesOfExpertsThatAreNoFloats) {
  TinyModelSpec spec = with_experts({}, "gpt-oss");
  spec.expert_bias_type = GGML_TYPE_F16;
  EXPECT_NE(error_of(spec).find("_exps.bias' has type f16; f32 is needed"), std::string::npos) << error_of(spec);
}

TEST(ModelErrors, VocabulariesThatWouldKillLibllama) {
  const auto tokens = [](auto change) {
    return [change](gguf_context* f) {
      auto texts = test::tiny_vocabulary("gpt2", 64).tokens;
      change(texts);
      set_strings(f, "tokenizer.ggml.tokens", texts);
    };
  };
  expect_errors(
      {}, {{"is 'bert'", [](auto* f) { set_str(f, "tokenizer.ggml.model", "bert"); }},
           {"model' is missing", [](auto* f) { gguf_remove_key(f, "tokenizer.ggml.model"); }},
           {"model' has type u32", [](auto* f) { set_u32(f, "tokenizer.ggml.model", 1); }},
           {"tokens' should be an array", [](auto* f) { set_str(f, "tokenizer.ggml.tokens", "a"); }},
           {"tokens' should be an array", [](auto* f) { gguf_remove_key(f, "tokenizer.ggml.tokens"); }},
           {"same text twice, the second time as token 300", tokens([](auto& t) { t[300] = t[299]; })},
           {"same text twice", tokens([](auto& t) { t[300] = "[EMPTY_301]", t[301] = ""; })},
           {"token_embd.weight' is 64 x 323", tokens([](auto& t) { t.pop_back(); })},
           {"one i32 a token",
            [](auto* f) {
              const int32_t one = 1;
              gguf_set_arr_data(f, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, &one, 1);
            }},
           {"one i32 a token", [](auto* f) { set_str(f, "tokenizer.ggml.token_type", "x"); }},
           {"calls token 0 a byte",
            [](auto* f) {
              const std::vector<int32_t> types(323, 6);
              gguf_set_arr_data(f, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
            }},
           {"bos_token_id' is 323", [](auto* f) { set_u32(f, "tokenizer.ggml.bos_token_id", 323); }},
           {"eos_token_id' is 4294967295", [](auto* f) { set_u32(f, "tokenizer.ggml.eos_token_id", 0xFFFFFFFF); }},
           {"eot_token_id' has type str", [](auto* f) { set_str(f, "tokenizer.ggml.eot_token_id", "1"); }},
           {"merges' should be", [](auto* f) { gguf_remove_key(f, "tokenizer.ggml.merges"); }},
           {"merges' should be", [](auto* f) { set_u32(f, "tokenizer.ggml.merges", 1); }},
           {"entry 1 is not two parts",
            [](auto* f) {
              set_strings(f, "tokenizer.ggml.merges", {"t h", "th"});
            }},
           {"entry 0 is not two parts", [](auto* f) { set_strings(f, "tokenizer.ggml.merges", {""}); }},
           {"pre' is 'whatever'", [](auto* f) { set_str(f, "tokenizer.ggml.pre", "whatever"); }},
           {"add_bos_token' should be a bool", [](auto* f) { set_u32(f, "tokenizer.ggml.add_bos_token", 1); }}});
}

TEST(ModelErrors, SentencePieceNeedsScoresAndBytes) {
  TinyModelSpec spec;
  spec.tokenizer = "llama";
  expect_errors(spec,
                {{"has no token <0x0A>",
                  [](auto* f) {
                    auto texts = test::tiny_vocabulary("llama", 64).tokens;
                    texts[3 + 10] = "newline";
                    const std::vector<int32_t> types(texts.size(), 1);
                    set_strings(f, "tokenizer.ggml.tokens", texts);
                    gguf_set_arr_data(f, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
                  }},
                 {"one f32 a token", [](auto* f) { gguf_remove_key(f, "tokenizer.ggml.scores"); }},
                 {"no number for token 7", [](auto* f) {
                    std::vector<float> scores(323, -1.0f);
                    scores[7] = std::numeric_limits<float>::quiet_NaN();
                    gguf_set_arr_data(f, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
                  }}});
}

// Frequencies are divided by them, so that 0, or a number next to it, gives angles without end.
TEST(ModelErrors, FactorsOfRopeThatMakeNoAngles) {
  const auto with_factor = [](float factor) {
    const std::string path = write_tiny_model({.rope_scaling = "factors"}, temp_path("factors.gguf"));
    const std::unique_ptr<gguf_context, decltype(&gguf_free)> header(
        gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}), &gguf_free);
    const int64_t id = gguf_find_tensor(header.get(), "rope_freqs.weight");
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(gguf_get_data_offset(header.get()) +
                                           gguf_get_tensor_offset(header.get(), id) + 3 * sizeof factor));
    file.write(reinterpret_cast<const char*>(&factor), sizeof factor);
    file.close();
    return path;
  };
  for (const float factor :
       {0.0f, -0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::denorm_min(), 1e-38f, 9e-4f, 1.1e6f}) {
    const std::string said = error_of(with_factor(factor));
    EXPECT_NE(said.find("'rope_freqs.weight'"), std::string::npos) << factor << ": " << said;
    EXPECT_NE(said.find("number 3"), std::string::npos) << said;
  }
  for (const float factor : {1e-3f, 1.0f, 64.0f, 1e6f}) EXPECT_TRUE(ModelFile::open(with_factor(factor))) << factor;
}

TEST(ModelErrors, MissingTensors) {
  for (const char* name : {"token_embd.weight", "output_norm.weight", "blk.2.attn_k.weight", "blk.3.ffn_down.weight"}) {
    TinyModelSpec spec;
    spec.without_tensors = {name};
    EXPECT_NE(error_of(spec).find(std::string("tensor '") + name + "' is missing"), std::string::npos)
        << error_of(spec);
  }
  TinyModelSpec spec;
  spec.architecture = "qwen2";
  spec.without_tensors = {"blk.0.attn_k.bias"};
  EXPECT_NE(error_of(spec).find("'blk.0.attn_k.bias' is missing"), std::string::npos);
  spec = with_experts({}, "qwen2moe");
  spec.without_tensors = {"blk.1.ffn_gate_inp_shexp.weight"};
  EXPECT_NE(error_of(spec).find("'blk.1.ffn_gate_inp_shexp.weight' is missing"), std::string::npos);
}

TEST(ModelErrors, TensorsThatTheFamilyDoesNotHave) {
  TinyModelSpec spec;
  spec.architecture = "qwen3";
  spec.edit_metadata = [](gguf_context* f) {
    for (const char* key :
         {"block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
          "attention.head_count_kv", "attention.key_length", "attention.value_length"}) {
      const auto id = gguf_find_key(f, (std::string("qwen3.") + key).c_str());
      set_u32(f, (std::string("llama.") + key).c_str(), gguf_get_val_u32(f, id));
    }
    set_f32(f, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    set_str(f, "general.architecture", "llama");
  };
  const std::string error = error_of(spec);
  EXPECT_NE(error.find("_norm.weight' is none that a model of architecture llama has"), std::string::npos) << error;
}

TEST(ModelErrors, FilesThatAreNoModels) {
  const std::string empty = temp_path("empty.gguf"), text = temp_path("text.gguf");
  std::ofstream(empty).flush();
  std::ofstream(text) << "once upon a time";
  EXPECT_NE(error_of(empty).find("is empty"), std::string::npos);
  EXPECT_NE(error_of(text).find("not a GGUF file"), std::string::npos);
  EXPECT_NE(error_of(temp_path("nowhere.gguf")).find("No such file"), std::string::npos);
  EXPECT_NE(error_of(std::filesystem::path(empty).parent_path().string()).find("not a file"), std::string::npos);
}

TEST(ModelErrors, ShardsThatDoNotBelongTogether) {
  TinyModelSpec spec;
  spec.shards = 3;
  const std::string first = write_tiny_model(spec, temp_path("parts.gguf"));
  const std::string second = temp_path("parts-00002-of-00003.gguf"), third = temp_path("parts-00003-of-00003.gguf");
  std::filesystem::copy_file(first, temp_path("renamed.gguf"));
  EXPECT_NE(error_of(temp_path("renamed.gguf")).find("its name should end in -00001-of-00003.gguf"), std::string::npos);
  std::filesystem::rename(second, temp_path("away"));
  EXPECT_NE(ModelFile::open(first).error().message.find(second + ": No such file"), std::string::npos);
  std::filesystem::copy_file(third, second);
  EXPECT_NE(ModelFile::open(first).error().message.find("not what its name says"), std::string::npos);
}

TEST(ModelErrors, AFileThatIsCutShort) {
  const std::string path = write_tiny_model({}, temp_path("short.gguf"));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 100);
  EXPECT_NE(error_of(path).find("reaches beyond the end of the file"), std::string::npos);
}

TEST(ModelErrors, AFileThatBecomesShorterAfterItWasOpened) {
  const std::string path = write_tiny_model({}, temp_path("shrinks.gguf"));
  const ModelFile model = ModelFile::open(path).value();
  std::filesystem::resize_file(path, 1000);
  EXPECT_NE(model.map({0, 4}, true, true).error().message.find("has become shorter"), std::string::npos);
}

}  // namespace
}  // namespace sluice

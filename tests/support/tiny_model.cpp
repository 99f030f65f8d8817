#include "support/tiny_model.h"

#include <gguf.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>

#include "base/random.h"
#include "model/family.h"
#include "support/tiny_vocabulary.h"

namespace sluice::test {

namespace {

using GgufContext = std::unique_ptr<gguf_context, decltype(&gguf_free)>;
using GgmlContext = std::unique_ptr<ggml_context, decltype(&ggml_free)>;

[[noreturn]] void fail(const std::string& why) { throw std::runtime_error("write_tiny_model: " + why); }

// A tensor as it goes into the file.
struct TensorData {
  std::string name;
  ggml_type type;
  int64_t ne[3];
  std::vector<uint8_t> bytes;
};

uint32_t hash_of(const std::string& name) {
  uint32_t hash = 2166136261u;  // FNV-1a
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  return hash;
}

// Uniform values of mean `mean` and standard deviation `deviation`: a function of seed, name and place.
std::vector<float> random_values(uint64_t seed, const std::string& name, int64_t n, float mean, float deviation) {
  std::vector<float> values(static_cast<size_t>(n));
  const uint32_t id = hash_of(name);
  for (size_t i = 0; i < values.size(); i += 4) {
    const auto words = philox4x32({static_cast<uint32_t>(i / 4), id, 0, static_cast<uint32_t>(Purpose::kTest)},
                                  {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
    for (size_t j = 0; j < 4 && i + j < values.size(); ++j) {
      const float u = (static_cast<float>(words[j] >> 8) + 0.5f) * 0x1p-23f - 1.0f;  // (-1, 1), variance 1/3
      values[i + j] = mean + deviation * 1.7320508f * u;
    }
  }
  return values;
}

std::vector<uint8_t> encode(ggml_type type, const std::vector<float>& values, int64_t n_in) {
  if (n_in % ggml_blck_size(type) != 0)
    fail(std::string("rows of ") + std::to_string(n_in) + " values do not fit type " + ggml_type_name(type));
  const int64_t n_rows = static_cast<int64_t>(values.size()) / n_in;
  std::vector<uint8_t> bytes(ggml_row_size(type, n_in) * static_cast<size_t>(n_rows));
  const std::vector<float> importance(static_cast<size_t>(n_in), 1.0f);
  ggml_quantize_chunk(type, values.data(), bytes.data(), 0, n_rows, n_in,
                      ggml_quantize_requires_imatrix(type) ? importance.data() : nullptr);
  return bytes;
}

bool is_hybrid(const TinyModelSpec& spec) { return find_family(spec.architecture)->delta.have; }
constexpr int32_t kAttentionEvery = 3, kTaps = 4;  // of hybrids

bool sees_everything(int32_t layer) { return layer % 3 == 2; }  // of gemma4

// Those that share are twice as wide.
int32_t gemma4_d_ff(const TinyModelSpec& spec, int32_t layer) {
  return layer >= spec.n_layers - spec.n_sharing_layers ? 2 * spec.d_ff : spec.d_ff;
}

bool predicts_further(const TinyModelSpec& spec) {
  return spec.architecture == "glm4moe" || spec.architecture == "deepseek2" || is_hybrid(spec);
}

// All tensors of the model that `spec` describes.
class Weights {
 public:
  explicit Weights(const TinyModelSpec& spec) : spec_(spec) {}

  std::vector<TensorData> make(int64_t n_vocab) {
    const bool biases = spec_.attention_bias || spec_.architecture.starts_with("qwen2") || is_glm() || is_oss();
    const int64_t d = spec_.d_model, head = spec_.head_dim, n_q = spec_.n_heads * head, n_kv = spec_.n_kv_heads * head;
    const float output_deviation = spec_.output_scale / std::sqrt(static_cast<float>(d));
    add("token_embd.weight", spec_.embedding_type, d, n_vocab, 0.0f, spec_.tied ? output_deviation : 1.0f);
    for (int32_t i = 0; i < spec_.n_layers + (predicts_further(spec_) ? 1 : 0); ++i) {
      const std::string layer = "blk." + std::to_string(i) + ".";
      if (i == spec_.n_layers) further_layer(layer);
      if (is_gemma4()) {
        gemma4(layer, i);
        continue;
      }
      vector(layer + "attn_norm.weight", d, 1.0f);
      const bool is_delta = is_hybrid(spec_) && i < spec_.n_layers && (i + 1) % kAttentionEvery != 0;
      if (is_delta) {
        delta_net(layer);
      } else if (is_deepseek()) {
        latent_attention(layer);
      } else {
        matrix(layer + "attn_q.weight", d, is_hybrid(spec_) ? 2 * n_q : n_q);
        matrix(layer + "attn_k.weight", d, n_kv);
        matrix(layer + "attn_v.weight", d, n_kv);
        matrix(layer + "attn_output.weight", n_q, d);
      }
      if (biases) {
        vector(layer + "attn_q.bias", n_q, 0.0f);
        vector(layer + "attn_k.bias", n_kv, 0.0f);
        vector(layer + "attn_v.bias", n_kv, 0.0f);
      }
      if (!is_delta && (spec_.architecture.starts_with("qwen3") || is_glm() || spec_.architecture == "gemma3")) {
        vector(layer + "attn_q_norm.weight", head, 1.0f);
        vector(layer + "attn_k_norm.weight", head, 1.0f);
      }
      if (is_oss()) {
        vector(layer + "attn_output.bias", d, 0.0f);
        vector(layer + "attn_sinks.weight", spec_.n_heads, 1.0f);
      }
      if (has_post_norms()) {
        vector(layer + "post_attention_norm.weight", d, 1.0f);
        vector(layer + "post_ffw_norm.weight", d, 1.0f);
      }
      vector(layer + (is_glm() || is_oss() || is_hybrid(spec_) ? "post_attention_norm.weight" : "ffn_norm.weight"), d,
             1.0f);
      if (spec_.n_experts > 0 && !((is_glm() || is_deepseek()) && i == 0)) {
        experts(layer);
        continue;
      }
      matrix(layer + "ffn_gate.weight", d, spec_.d_ff, 1, spec_.gate_scale);
      matrix(layer + "ffn_up.weight", d, spec_.d_ff);
      matrix(layer + "ffn_down.weight", spec_.d_ff, d, 1, 1.0f / spec_.gate_scale);
    }
    vector("output_norm.weight", d, 1.0f);
    if (!spec_.tied) add("output.weight", spec_.type, d, n_vocab, 0.0f, output_deviation);
    if (spec_.rope_scaling == "factors" || is_gemma4()) rope_factors();
    if (spec_.d_per_layer > 0) {
      const int64_t n = int64_t{spec_.n_layers} * spec_.d_per_layer;
      add("per_layer_token_embd.weight", spec_.embedding_type, n, n_vocab, 0.0f, 1.0f);
      matrix("per_layer_model_proj.weight", d, n);
      vector("per_layer_proj_norm.weight", spec_.d_per_layer, 1.0f);
    }
    return std::move(tensors_);
  }

 private:
  void add(const std::string& name, ggml_type type, int64_t n_in, int64_t n_out, float mean, float deviation,
           int64_t n = 1) {
    const auto values = random_values(spec_.seed, name, n_in * n_out * n, mean, deviation);
    tensors_.push_back({name, type, {n_in, n_out, n}, encode(type, values, n_in)});
  }
  void matrix(const std::string& name, int64_t n_in, int64_t n_out, int64_t n = 1, float scale = 1.0f) {
    add(name, spec_.type, n_in, n_out, 0.0f, scale * spec_.weight_scale / std::sqrt(static_cast<float>(n_in)), n);
  }
  bool is_glm() const { return spec_.architecture == "glm4moe"; }
  bool is_deepseek() const { return spec_.architecture == "deepseek2"; }
  bool is_gemma4() const { return spec_.architecture == "gemma4"; }
  bool is_oss() const { return spec_.architecture == "gpt-oss"; }
  bool has_post_norms() const { return spec_.architecture == "gemma2" || spec_.architecture == "gemma3"; }
  void latent_attention(const std::string& layer) {
    const int64_t d = spec_.d_model, turned = spec_.head_dim / 2, n = spec_.n_heads, rank = spec_.latent_rank;
    const int64_t n_q = n * (spec_.latent_key + turned), q_rank = spec_.latent_q_rank;
    if (q_rank > 0) {
      matrix(layer + "attn_q_a.weight", d, q_rank);
      vector(layer + "attn_q_a_norm.weight", q_rank, 1.0f);
    }
    matrix(layer + (q_rank > 0 ? "attn_q_b.weight" : "attn_q.weight"), q_rank > 0 ? q_rank : d, n_q);
    matrix(layer + "attn_kv_a_mqa.weight", d, rank + turned);
    vector(layer + "attn_kv_a_norm.weight", rank, 1.0f);
    matrix(layer + "attn_k_b.weight", spec_.latent_key, rank, n);
    matrix(layer + "attn_v_b.weight", rank, spec_.latent_value, n);
    matrix(layer + "attn_output.weight", n * spec_.latent_value, d);
  }
  void gemma4(const std::string& layer, int32_t i) {
    const int64_t d = spec_.d_model, ff = gemma4_d_ff(spec_, i), n = spec_.d_per_layer, n_experts = spec_.n_experts;
    const bool sees_all = sees_everything(i), shares = i >= spec_.n_layers - spec_.n_sharing_layers;
    const int64_t head = spec_.head_dim * (sees_all ? 2 : 1), n_q = spec_.n_heads * head;
    const int64_t n_kv = head * (sees_all ? 1 : spec_.n_kv_heads);
    vector(layer + "attn_norm.weight", d, 1.0f);
    matrix(layer + "attn_q.weight", d, n_q);
    // Scores are not scaled: with weights around 1 next to nothing but the largest would count.
    vector(layer + "attn_q_norm.weight", head, 1.0f / std::sqrt(static_cast<float>(head)));
    if (!shares) {
      matrix(layer + "attn_k.weight", d, n_kv);
      if (!sees_all || spec_.other_form) matrix(layer + "attn_v.weight", d, n_kv);
      vector(layer + "attn_k_norm.weight", head, 1.0f);
    }
    matrix(layer + "attn_output.weight", n_q, d);
    for (const char* norm : {"post_attention_norm", "ffn_norm", "post_ffw_norm"})
      vector(layer + norm + ".weight", d, 1.0f);
    matrix(layer + "ffn_gate.weight", d, ff, 1, spec_.gate_scale);
    matrix(layer + "ffn_up.weight", d, ff);
    matrix(layer + "ffn_down.weight", ff, d, 1, 1.0f / spec_.gate_scale);
    if (!spec_.other_form) vector(layer + "layer_output_scale.weight", 1, 0.9f);
    if (n > 0) {
      matrix(layer + "inp_gate.weight", d, n, 1, spec_.gate_scale);
      matrix(layer + "proj.weight", n, d, 1, 1.0f / spec_.gate_scale);
      vector(layer + "post_norm.weight", d, 1.0f);
    }
    if (n_experts == 0) return;
    const int64_t ff_expert = spec_.d_ff_expert;
    add(layer + "ffn_gate_inp.weight", GGML_TYPE_F32, d, n_experts, 0.0f, 4.0f);
    vector(layer + "ffn_gate_inp.scale", d, 1.0f);
    for (const char* norm : {"pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"})
      vector(layer + norm + ".weight", d, 1.0f);
    if (spec_.other_form) {
      matrix(layer + "ffn_gate_exps.weight", d, ff_expert, n_experts, spec_.gate_scale);
      matrix(layer + "ffn_up_exps.weight", d, ff_expert, n_experts);
    } else {
      matrix(layer + "ffn_gate_up_exps.weight", d, 2 * ff_expert, n_experts, spec_.gate_scale);
      vector(layer + "ffn_down_exps.scale", n_experts, 1.0f);
    }
    matrix(layer + "ffn_down_exps.weight", ff_expert, d, n_experts, 1.0f / spec_.gate_scale);
  }
  void delta_net(const std::string& layer) {
    const int64_t d = spec_.d_model, n_keys = spec_.delta_key_heads, n = spec_.delta_value_heads;
    const int64_t head = spec_.delta_head_dim, mixed = (2 * n_keys + n) * head;
    matrix(layer + "attn_qkv.weight", d, mixed);
    matrix(layer + "attn_gate.weight", d, n * head);
    add(layer + "ssm_conv1d.weight", GGML_TYPE_F32, kTaps, mixed, 0.0f, 0.7f);
    if (find_family(spec_.architecture)->delta.grouped) {
      matrix(layer + "ssm_ba.weight", d, 2 * n);
    } else {
      matrix(layer + "ssm_beta.weight", d, n);
      matrix(layer + "ssm_alpha.weight", d, n);
    }
    add(layer + "ssm_dt.bias", GGML_TYPE_F32, n, 1, -2.0f, 1.0f);
    add(layer + "ssm_a", GGML_TYPE_F32, n, 1, -0.5f, 0.2f);
    vector(layer + "ssm_norm.weight", head, 1.0f);
    matrix(layer + "ssm_out.weight", n * head, d);
  }
  // What the layer that predicts further tokens has besides what the others have. It begins with little more than the
  // embedding, as the model does, and so guesses what that says now and then.
  void further_layer(const std::string& layer) {
    const int64_t d = spec_.d_model;
    const std::string name = layer + "nextn.eh_proj.weight";
    auto projection = random_values(spec_.seed, name, 2 * d * d, 0.0f, 0.1f / std::sqrt(static_cast<float>(d)));
    for (int64_t i = 0; i < d; ++i) projection[static_cast<size_t>(i * 2 * d + i)] += 1.0f;
    tensors_.push_back({name, spec_.type, {2 * d, d, 1}, encode(spec_.type, projection, 2 * d)});
    vector(layer + "nextn.enorm.weight", d, 1.0f);
    vector(layer + "nextn.hnorm.weight", d, 1.0f);
  }
  // The router is f32, as in files; its logits are far enough apart that rounding decides nothing.
  void experts(const std::string& layer) {
    const int64_t d = spec_.d_model, n = spec_.n_experts;
    const int64_t ff = spec_.architecture == "llama" ? spec_.d_ff : spec_.d_ff_expert;
    add(layer + "ffn_gate_inp.weight", GGML_TYPE_F32, d, n, 0.0f, 2.0f / std::sqrt(static_cast<float>(d)));
    matrix(layer + "ffn_gate_exps.weight", d, ff, n);
    matrix(layer + "ffn_up_exps.weight", d, ff, n);
    matrix(layer + "ffn_down_exps.weight", ff, d, n);
    if (is_glm() || is_deepseek()) vector(layer + "exp_probs_b.bias", n, 0.0f);
    if (is_oss()) {
      vector(layer + "ffn_gate_inp.bias", n, 0.0f);
      add(layer + "ffn_gate_exps.bias", spec_.expert_bias_type, ff, n, 0.0f, 0.3f);
      add(layer + "ffn_up_exps.bias", spec_.expert_bias_type, ff, n, 0.0f, 0.3f);
      add(layer + "ffn_down_exps.bias", spec_.expert_bias_type, d, n, 0.0f, 0.1f);
    }
    if (spec_.d_ff_shared == 0) return;
    if (!is_glm() && !is_deepseek()) vector(layer + "ffn_gate_inp_shexp.weight", d, 0.0f);
    matrix(layer + "ffn_gate_shexp.weight", d, spec_.d_ff_shared);
    matrix(layer + "ffn_up_shexp.weight", d, spec_.d_ff_shared);
    matrix(layer + "ffn_down_shexp.weight", spec_.d_ff_shared, d);
  }
  void vector(const std::string& name, int64_t n, float mean) { add(name, GGML_TYPE_F32, n, 1, mean, 0.1f); }

  // As in Llama 3: fast dimensions keep their frequency, slow ones are divided by 8, with a ramp between. Of gemma4
  // three of four don't turn.
  void rope_factors() {
    const int64_t n = is_gemma4() ? spec_.head_dim : spec_.head_dim / 2;
    std::vector<float> factors(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i)
      factors[static_cast<size_t>(i)] =
          is_gemma4() ? (i < n / 4 ? 1.0f : 1e30f) : 1.0f + 7.0f * static_cast<float>(i) / static_cast<float>(n);
    tensors_.push_back({"rope_freqs.weight", GGML_TYPE_F32, {n, 1, 1}, encode(GGML_TYPE_F32, factors, n)});
  }

  const TinyModelSpec& spec_;
  std::vector<TensorData> tensors_;
};

void set_strings(gguf_context* file, const char* key, const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  gguf_set_arr_str(file, key, pointers.data(), pointers.size());
}

void set_vocabulary(gguf_context* file, const TinyVocabulary& v) {
  gguf_set_val_str(file, "tokenizer.ggml.model", v.model.c_str());
  if (!v.pre.empty()) gguf_set_val_str(file, "tokenizer.ggml.pre", v.pre.c_str());
  set_strings(file, "tokenizer.ggml.tokens", v.tokens);
  gguf_set_arr_data(file, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, v.types.data(), v.types.size());
  if (!v.scores.empty())
    gguf_set_arr_data(file, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, v.scores.data(), v.scores.size());
  if (v.model != "llama") set_strings(file, "tokenizer.ggml.merges", v.merges);
  gguf_set_val_u32(file, "tokenizer.ggml.bos_token_id", v.bos);
  gguf_set_val_u32(file, "tokenizer.ggml.eos_token_id", v.eos);
  gguf_set_val_bool(file, "tokenizer.ggml.add_bos_token", v.adds_bos);
}

void set_rope(gguf_context* file, const TinyModelSpec& spec) {
  const auto key = [&](const char* name) { return spec.architecture + ".rope." + name; };
  const bool turns_half = spec.architecture == "glm4moe" || spec.architecture == "deepseek2" || is_hybrid(spec);
  const int32_t turned = turns_half ? spec.head_dim / 2 : spec.head_dim;
  const bool is_gemma4 = spec.architecture == "gemma4";
  gguf_set_val_u32(file, key("dimension_count").c_str(), static_cast<uint32_t>(is_gemma4 ? 2 * turned : turned));
  if (is_gemma4) {
    gguf_set_val_u32(file, key("dimension_count_swa").c_str(), static_cast<uint32_t>(turned));
    gguf_set_val_f32(file, key("freq_base_swa").c_str(), 5000.0f);
  }
  gguf_set_val_f32(file, key("freq_base").c_str(), spec.rope_base);
  if (find_family(spec.architecture)->rope_sections) {
    const int32_t pairs = turned / 2, sections[] = {(pairs + 2) / 3, (pairs + 1) / 3, pairs / 3, 0};
    gguf_set_arr_data(file, key("dimension_sections").c_str(), GGUF_TYPE_INT32, sections, 4);
  }
  if (spec.rope_scaling == "linear" || spec.rope_scaling == "yarn") {
    gguf_set_val_str(file, key("scaling.type").c_str(), spec.rope_scaling.c_str());
    gguf_set_val_f32(file, key("scaling.factor").c_str(), 4.0f);
    gguf_set_val_u32(file, key("scaling.original_context_length").c_str(),
                     static_cast<uint32_t>(spec.context_length / 4));
    if (spec.architecture == "deepseek2") gguf_set_val_f32(file, key("scaling.yarn_log_multiplier").c_str(), 0.0707f);
  } else if (spec.rope_scaling != "none" && spec.rope_scaling != "factors") {
    fail("no RoPE scaling '" + spec.rope_scaling + "'");
  }
}

void set_gemma4(gguf_context* file, const TinyModelSpec& spec) {
  std::vector<uint32_t> kv_heads, d_ff;
  std::vector<uint8_t> sees_window;
  for (int32_t i = 0; i < spec.n_layers; ++i) {
    sees_window.push_back(sees_everything(i) ? 0 : 1);
    kv_heads.push_back(sees_everything(i) ? 1 : static_cast<uint32_t>(spec.n_kv_heads));
    d_ff.push_back(static_cast<uint32_t>(gemma4_d_ff(spec, i)));
  }
  const auto set = [&](const char* name, int32_t value) {
    gguf_set_val_u32(file, (std::string("gemma4.") + name).c_str(), static_cast<uint32_t>(value));
  };
  const auto set_all = [&](const char* name, gguf_type type, const auto& values) {
    gguf_set_arr_data(file, (std::string("gemma4.") + name).c_str(), type, values.data(), values.size());
  };
  set_all("attention.sliding_window_pattern", GGUF_TYPE_BOOL, sees_window);
  set_all("attention.head_count_kv", GGUF_TYPE_UINT32, kv_heads);
  set_all("feed_forward_length", GGUF_TYPE_UINT32, d_ff);
  set("attention.key_length", 2 * spec.head_dim);
  set("attention.value_length", 2 * spec.head_dim);
  set("attention.key_length_swa", spec.head_dim);
  set("attention.value_length_swa", spec.head_dim);
  set("attention.shared_kv_layers", spec.n_sharing_layers);
  set("embedding_length_per_layer_input", spec.d_per_layer);
}

void set_metadata(gguf_context* file, const TinyModelSpec& spec, const TinyVocabulary& vocabulary) {
  const auto set = [&](const char* name, int32_t value) {
    gguf_set_val_u32(file, (spec.architecture + "." + name).c_str(), static_cast<uint32_t>(value));
  };
  gguf_set_val_str(file, "general.architecture", spec.architecture.c_str());
  gguf_set_val_str(file, "general.name", ("tiny-" + spec.architecture).c_str());
  set("block_count", spec.n_layers + (predicts_further(spec) ? 1 : 0));
  if (predicts_further(spec)) set("nextn_predict_layers", 1);
  set("context_length", spec.context_length);
  set("embedding_length", spec.d_model);
  set("feed_forward_length", spec.d_ff);
  if (spec.n_experts > 0) {
    set("expert_count", spec.n_experts);
    set("expert_used_count", spec.n_experts_used);
    if (spec.d_ff_expert > 0) set("expert_feed_forward_length", spec.d_ff_expert);
    if (spec.architecture == "qwen2moe" || is_hybrid(spec)) set("expert_shared_feed_forward_length", spec.d_ff_shared);
    if (spec.architecture == "glm4moe") {
      set("expert_shared_count", 1);
      set("leading_dense_block_count", 1);
      gguf_set_val_bool(file, "glm4moe.expert_weights_norm", true);
      gguf_set_val_f32(file, "glm4moe.expert_weights_scale", 1.5f);
    }
  }
  if (spec.architecture == "deepseek2") {
    if (spec.latent_q_rank > 0) set("attention.q_lora_rank", spec.latent_q_rank);
    set("attention.kv_lora_rank", spec.latent_rank);
    set("attention.key_length_mla", spec.latent_key + spec.head_dim / 2);
    set("attention.value_length_mla", spec.latent_value);
    set("expert_shared_count", 1);
    set("leading_dense_block_count", 1);
    set("expert_gating_func", 2);
    if (spec.n_experts % 2 == 0) {
      set("expert_group_count", spec.n_experts / 2);
      set("expert_group_used_count", spec.n_experts / 2 - 1);
    }
    gguf_set_val_bool(file, "deepseek2.expert_weights_norm", true);
    gguf_set_val_f32(file, "deepseek2.expert_weights_scale", 2.5f);
  }
  if (is_hybrid(spec)) {
    set("full_attention_interval", kAttentionEvery);
    set("ssm.group_count", spec.delta_key_heads);
    set("ssm.time_step_rank", spec.delta_value_heads);
    set("ssm.state_size", spec.delta_head_dim);
    set("ssm.inner_size", spec.delta_value_heads * spec.delta_head_dim);
    set("ssm.conv_kernel", kTaps);
  }
  const bool caps = spec.architecture == "gemma2" || spec.architecture == "gemma3" || spec.architecture == "gemma4";
  if (spec.architecture == "gpt-oss" || caps) set("attention.sliding_window", 24);
  if (spec.architecture == "gemma2") gguf_set_val_f32(file, "gemma2.attn_logit_softcapping", 2.0f);
  if (caps) gguf_set_val_f32(file, (spec.architecture + ".final_logit_softcapping").c_str(), 12.0f);
  if (spec.architecture == "gemma3") set("attention.sliding_window_pattern", 3);
  set("attention.head_count", spec.n_heads);
  const bool latent = spec.architecture == "deepseek2";
  set("attention.head_count_kv", latent ? 1 : spec.n_kv_heads);
  set("attention.key_length", latent ? spec.latent_rank + spec.head_dim / 2 : spec.head_dim);
  set("attention.value_length", latent ? spec.latent_rank : spec.head_dim);
  if (spec.architecture == "gemma4") set_gemma4(file, spec);
  gguf_set_val_f32(file, (spec.architecture + ".attention.layer_norm_rms_epsilon").c_str(), 1e-5f);
  set_rope(file, spec);
  set_vocabulary(file, vocabulary);
  if (!spec.chat_template.empty()) gguf_set_val_str(file, "tokenizer.chat_template", spec.chat_template.c_str());
  if (spec.edit_metadata) spec.edit_metadata(file);
}

void write_file(gguf_context* file, std::vector<TensorData>& tensors, size_t first, size_t last,
                const std::string& path) {
  const GgmlContext context(ggml_init({ggml_tensor_overhead() * (last - first + 1), nullptr, true}), &ggml_free);
  for (size_t i = first; i < last; ++i) {
    TensorData& data = tensors[i];
    const bool is_vector = data.ne[1] == 1 && data.name.find("embd") == std::string::npos;
    const int n_dims = is_vector ? 1 : data.ne[2] > 1 ? 3 : 2;
    ggml_tensor* tensor = ggml_new_tensor(context.get(), data.type, n_dims, data.ne);
    ggml_set_name(tensor, data.name.c_str());
    tensor->data = data.bytes.data();
    gguf_add_tensor(file, tensor);
  }
  if (!gguf_write_to_file(file, path.c_str(), false)) fail("cannot write " + path);
}

}  // namespace

TinyModelSpec narrow_model(int32_t n_layers) {
  return {.n_layers = n_layers,
          .d_model = 32,
          .n_heads = 2,
          .n_kv_heads = 1,
          .d_ff = 64,
          .extra_tokens = 0,
          .type = GGML_TYPE_Q8_0,
          .weight_scale = 0.7f,
          .output_scale = 8.0f,
          .seed = 5};
}

TinyModelSpec with_experts(TinyModelSpec spec, const std::string& architecture) {
  spec.architecture = architecture;
  spec.n_experts = 5;
  spec.n_experts_used = 2;
  if (architecture != "llama") spec.d_ff_expert = spec.d_ff / 2;
  if (architecture == "qwen2moe" || is_hybrid(spec)) spec.d_ff_shared = spec.d_ff;
  if (architecture == "glm4moe" || architecture == "deepseek2") spec.d_ff_shared = spec.d_ff_expert;
  if (architecture == "deepseek2") spec.n_experts = 8;
  if (architecture == "gemma4") spec.tied = true;
  return spec;
}

TinyModelSpec of_family(TinyModelSpec spec, const std::string& architecture) {
  if (find_family(architecture)->per_layer_embeddings) spec.d_per_layer = spec.d_model;
  const ExpertRules::Have have = find_family(architecture)->experts.have;
  if (have != ExpertRules::Have::kNever) return with_experts(spec, architecture);
  spec.architecture = architecture;
  spec.tied = spec.tied || architecture.starts_with("gemma");
  return spec;
}

TinyModelSpec sharing_model(TinyModelSpec spec) {
  spec.architecture = "gemma4";
  spec.n_layers = 9;
  spec.n_sharing_layers = 3;
  spec.d_per_layer = spec.d_model;
  spec.tied = true;
  return spec;
}

std::string write_tiny_model(const TinyModelSpec& spec, const std::string& path) {
  TinyVocabulary vocabulary = tiny_vocabulary(spec.tokenizer, spec.extra_tokens);
  if (spec.tokenizer == "gpt2") vocabulary.pre = spec.pre_tokenizer;
  if (spec.rope_scaling == "factors" && spec.architecture != "llama") fail("only llama has RoPE factors");
  std::vector<TensorData> tensors = Weights(spec).make(static_cast<int64_t>(vocabulary.tokens.size()));
  std::erase_if(tensors, [&](const TensorData& t) { return std::ranges::count(spec.without_tensors, t.name) > 0; });
  if (spec.shards == 1) {
    const GgufContext file(gguf_init_empty(), &gguf_free);
    set_metadata(file.get(), spec, vocabulary);
    write_file(file.get(), tensors, 0, tensors.size(), path);
    return path;
  }
  if (!path.ends_with(".gguf")) fail("the name of a sharded model ends in .gguf");
  std::string first_path;
  const auto n = static_cast<size_t>(spec.shards);
  for (size_t i = 0; i < n; ++i) {
    const GgufContext file(gguf_init_empty(), &gguf_free);
    if (i == 0) set_metadata(file.get(), spec, vocabulary);
    gguf_set_val_u16(file.get(), "split.no", static_cast<uint16_t>(i));
    gguf_set_val_u16(file.get(), "split.count", static_cast<uint16_t>(n));
    gguf_set_val_i32(file.get(), "split.tensors.count", static_cast<int32_t>(tensors.size()));
    char suffix[64];
    std::snprintf(suffix, sizeof(suffix), "-%05zu-of-%05zu.gguf", i + 1, n);
    const std::string shard = path.substr(0, path.size() - 5) + suffix;
    write_file(file.get(), tensors, tensors.size() * i / n, tensors.size() * (i + 1) / n, shard);
    if (i == 0) first_path = shard;
  }
  return first_path;
}

}  // namespace sluice::test

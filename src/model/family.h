// What tells one model family from another. All else is in the hyperparameters and in which tensors a file has.
#pragma once

#include <string_view>

#include "model/model_file.h"

namespace sluice {

// How a family chooses and weighs the experts of a mixture, if it has one.
struct ExpertRules {
  enum class Have : uint8_t { kNever, kIfCounted, kAlways };
  // An expert that all tokens use; gated: it counts as a router of its own says.
  enum class Shared : uint8_t { kNone, kGated, kPlain };
  Have have = Have::kNever;
  Shared shared = Shared::kNone;
  MixtureParameters::Gating gating = MixtureParameters::Gating::kSoftmax;
  bool normalised = false;    // where the file doesn't say
  bool biased = false;        // biases are added to the shares by which experts are chosen, not to their weights
  bool as_said = false;       // the file may say how they are chosen: gating, groups, biases
  bool has_biases = false;    // of all their products, the router's too
  bool beside_dense = false;  // a dense network stands beside them, each behind norms of its own
};

// Layers that see a window only.
struct WindowRules {
  enum class Have : uint8_t { kNever, kIfSaid, kAlways };
  Have have = Have::kNever;
  int32_t period = 0;      // all layers but every so-many-th, where the file doesn't say; below 0: it must
  int32_t size = 0;        // in tokens, likewise; 0: the file must
  float rope_base = 0.0f;  // of those layers, likewise, and they extend no context; 0: they turn as the others do
  bool own_heads = false;  // they say how many heads they have for keys and values, and of which size
};

// Layers that are gated delta nets, all but every so-many-th; then the others have gated attention.
struct DeltaNetRules {
  bool have = false;
  // What value heads read of a key head, and how much they take in and keep, lies together.
  bool grouped = false;
};

struct ModelFamily {
  std::string_view architecture;  // general.architecture
  RopeParameters::Pairing rope_pairing;
  enum class RopeFactors : uint8_t { kNone, kOptional, kRequired };
  RopeFactors rope_factors = RopeFactors::kNone;  // rope_freqs.weight, of layers that see everything
  bool head_dim_divides_model = false;            // n_heads * head_dim == d_model
  bool qkv_bias_required = false;
  bool inner_biases = false;  // may carry biases behind the attention and in the feed-forward network
  bool output_bias = false;   // may carry a bias on the logits
  enum class QkNorm : uint8_t { kNone, kOptional, kRequired };
  QkNorm qk_norm = QkNorm::kNone;            // queries and keys are normalised head by head
  const char* ffn_norm = "ffn_norm.weight";  // the norm before the feed-forward network
  bool rope_in_part = false;                 // may turn a part of a head only
  bool rope_sections = false;                // says which parts turn by which coordinate, all the same in text
  bool predicts_further = false;             // may carry layers behind the others that predict further tokens
  bool out_bias_required = false;            // behind the attention
  bool sinks = false;                        // has scores of attention that are no token's
  WindowRules windows = {};
  Activation activation = Activation::kSilu;
  bool post_norms = false;                       // what is added to the states is normalised before
  bool scaled_embedding = false;                 // by the root of d_model
  bool has_caps = false;                         // may cap logits, and scores if it has a cap for them:
  float attention_cap = 0.0f, logit_cap = 0.0f;  // where the file doesn't say
  int32_t scores_scaled_by_width = 0;            // with so many layers by 1 / sqrt(d_model / heads)
  bool plain_scores = false;                     // not scaled at all
  bool normed_values = false;                    // and what gives keys may give values, too
  bool varied_widths = false;                    // of feed-forward networks, layer by layer
  bool shares_keys = false;                      // the last layers may read keys and values of earlier ones
  bool per_layer_embeddings = false;             // tokens may have an embedding for each layer
  bool output_scales = false;                    // layers may scale their states
  bool latent = false;                           // attention over latents
  bool values_as_keys = false;  // where the size of a value is not said, it is that of a key, not d_model / heads
  DeltaNetRules delta = {};
  ExpertRules experts = {};
};

inline constexpr ModelFamily kModelFamilies[] = {
    {.architecture = "llama",  // Llama 2 and 3, Mistral, Mixtral, SmolLM2
     .rope_pairing = RopeParameters::Pairing::kAdjacent,
     .rope_factors = ModelFamily::RopeFactors::kOptional,
     .inner_biases = true,
     .experts = {.have = ExpertRules::Have::kIfCounted, .normalised = true}},
    {.architecture = "qwen2",  // Qwen 2 and 2.5
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .head_dim_divides_model = true,
     .qkv_bias_required = true,
     .output_bias = true},
    {.architecture = "qwen3",
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .qk_norm = ModelFamily::QkNorm::kRequired},
    {.architecture = "qwen2moe",  // Qwen1.5-MoE, Qwen2 57B-A14B
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .head_dim_divides_model = true,
     .experts = {.have = ExpertRules::Have::kAlways, .shared = ExpertRules::Shared::kGated}},
    {.architecture = "qwen3moe",  // Qwen3 30B-A3B and 235B-A22B, Qwen3-Coder
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .qk_norm = ModelFamily::QkNorm::kRequired,
     .experts = {.have = ExpertRules::Have::kAlways, .normalised = true}},
    {.architecture = "glm4moe",  // GLM-4.5 and 4.6, GLM-4.5-Air
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .qk_norm = ModelFamily::QkNorm::kOptional,
     .ffn_norm = "post_attention_norm.weight",
     .rope_in_part = true,
     .predicts_further = true,
     .experts = {.have = ExpertRules::Have::kAlways,
                 .shared = ExpertRules::Shared::kPlain,
                 .gating = MixtureParameters::Gating::kSigmoid,
                 .biased = true}},
    {.architecture = "deepseek2",  // DeepSeek V2, V3 and R1, Kimi K2, GLM-4.7-Flash
     .rope_pairing = RopeParameters::Pairing::kAdjacent,
     .rope_in_part = true,
     .predicts_further = true,
     .latent = true,
     .experts = {.have = ExpertRules::Have::kAlways, .shared = ExpertRules::Shared::kPlain, .as_said = true}},
    {.architecture = "qwen3next",  // Qwen3-Next 80B-A3B, Qwen3-Coder-Next
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .qk_norm = ModelFamily::QkNorm::kRequired,
     .ffn_norm = "post_attention_norm.weight",
     .rope_in_part = true,
     .predicts_further = true,
     .delta = {.have = true, .grouped = true},
     .experts = {.have = ExpertRules::Have::kAlways, .shared = ExpertRules::Shared::kGated, .normalised = true}},
    {.architecture = "qwen35",  // Qwen3.5 and 3.6, dense
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .qk_norm = ModelFamily::QkNorm::kRequired,
     .ffn_norm = "post_attention_norm.weight",
     .rope_in_part = true,
     .rope_sections = true,
     .predicts_further = true,
     .delta = {.have = true}},
    {.architecture = "qwen35moe",  // Qwen3.5 35B-A3B to 397B-A17B, Qwen3.6
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .qk_norm = ModelFamily::QkNorm::kRequired,
     .ffn_norm = "post_attention_norm.weight",
     .rope_in_part = true,
     .rope_sections = true,
     .predicts_further = true,
     .delta = {.have = true},
     .experts = {.have = ExpertRules::Have::kAlways, .shared = ExpertRules::Shared::kGated, .normalised = true}},
    {.architecture = "gpt-oss",
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .qkv_bias_required = true,
     .ffn_norm = "post_attention_norm.weight",
     .out_bias_required = true,
     .sinks = true,
     .windows = {.have = WindowRules::Have::kAlways, .period = 2},
     .activation = Activation::kClampedSilu,
     .experts = {.have = ExpertRules::Have::kAlways,
                 .gating = MixtureParameters::Gating::kSoftmaxOfChosen,
                 .has_biases = true}},
    {.architecture = "gemma",
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .activation = Activation::kGelu,
     .scaled_embedding = true},
    {.architecture = "gemma2",
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .windows = {.have = WindowRules::Have::kAlways, .period = 2, .size = 4096},
     .activation = Activation::kGelu,
     .post_norms = true,
     .scaled_embedding = true,
     .has_caps = true,
     .attention_cap = 50.0f,
     .logit_cap = 30.0f,
     .scores_scaled_by_width = 46},
    {.architecture = "gemma3",
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .qk_norm = ModelFamily::QkNorm::kRequired,
     .windows = {.have = WindowRules::Have::kIfSaid, .period = 6, .rope_base = 10000.0f},
     .activation = Activation::kGelu,
     .post_norms = true,
     .scaled_embedding = true,
     .has_caps = true,
     .scores_scaled_by_width = 62},
    {.architecture = "gemma4",  // E2B, E4B, 31B, 26B-A4B
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .rope_factors = ModelFamily::RopeFactors::kRequired,
     .qk_norm = ModelFamily::QkNorm::kRequired,
     .windows = {.have = WindowRules::Have::kAlways, .period = -1, .rope_base = 10000.0f, .own_heads = true},
     .activation = Activation::kGelu,
     .post_norms = true,
     .scaled_embedding = true,
     .has_caps = true,
     .plain_scores = true,
     .normed_values = true,
     .varied_widths = true,
     .shares_keys = true,
     .per_layer_embeddings = true,
     .output_scales = true,
     .experts = {.have = ExpertRules::Have::kIfCounted, .normalised = true, .beside_dense = true}},
};

// The family of that name, or nullptr.
inline const ModelFamily* find_family(std::string_view architecture) {
  for (const ModelFamily& family : kModelFamilies)
    if (family.architecture == architecture) return &family;
  return nullptr;
}

}  // namespace sluice

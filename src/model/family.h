// What tells one model family from another. All else is in the hyperparameters and in which tensors a file has.
#pragma once

#include <string_view>

#include "model/model_file.h"

namespace sluice {

struct ModelFamily {
  std::string_view architecture;  // general.architecture
  RopeParameters::Pairing rope_pairing;
  bool rope_factors;            // may carry rope_freqs.weight
  bool head_dim_divides_model;  // n_heads * head_dim == d_model
  bool qkv_bias_required;
  bool inner_biases;            // may carry biases behind the attention and in the feed-forward network
  bool output_bias;             // may carry a bias on the logits
  bool qk_norm;                 // queries and keys are normalised head by head
  bool values_as_keys = false;  // where the size of a value is not said, it is that of a key, not d_model / heads
};

inline constexpr ModelFamily kModelFamilies[] = {
    {.architecture = "llama",  // Llama 2 and 3, Mistral, SmolLM2
     .rope_pairing = RopeParameters::Pairing::kAdjacent,
     .rope_factors = true,
     .head_dim_divides_model = false,
     .qkv_bias_required = false,
     .inner_biases = true,
     .output_bias = false,
     .qk_norm = false},
    {.architecture = "qwen2",  // Qwen 2 and 2.5
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .rope_factors = false,
     .head_dim_divides_model = true,
     .qkv_bias_required = true,
     .inner_biases = false,
     .output_bias = true,
     .qk_norm = false},
    {.architecture = "qwen3",
     .rope_pairing = RopeParameters::Pairing::kHalves,
     .rope_factors = false,
     .head_dim_divides_model = false,
     .qkv_bias_required = false,
     .inner_biases = false,
     .output_bias = false,
     .qk_norm = true},
};

// The family of that name, or nullptr.
inline const ModelFamily* find_family(std::string_view architecture) {
  for (const ModelFamily& family : kModelFamilies)
    if (family.architecture == architecture) return &family;
  return nullptr;
}

}  // namespace sluice

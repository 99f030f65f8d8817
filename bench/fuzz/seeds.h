// The small models that the fuzzing begins with.
#pragma once

#include <string>

#include "model/family.h"
#include "support/tiny_model.h"

namespace sluice::test {

inline TinyModelSpec fuzzed_model(const std::string& architecture, const std::string& tokenizer) {
  TinyModelSpec spec;
  spec.architecture = architecture;
  spec.tokenizer = tokenizer;
  spec.n_layers = 1;
  spec.d_model = spec.d_ff = 2;
  spec.n_heads = spec.n_kv_heads = 1;
  spec.head_dim = 2;
  spec.delta_key_heads = spec.delta_value_heads = 1;
  spec.delta_head_dim = 8;
  spec.extra_tokens = 2;
  spec.tied = true;
  spec.rope_scaling = find_family(architecture)->windows.rope_base == 0.0f ? "yarn" : "linear";
  return architecture == "llama" ? spec : of_family(spec, architecture);
}

// The target of all heads: as many layers as a head's taps need.
inline TinyModelSpec fuzzed_target() {
  TinyModelSpec spec = fuzzed_model("llama", "gpt2");
  spec.n_layers = 4;
  return spec;
}

}  // namespace sluice::test

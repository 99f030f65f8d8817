// Small targets and made-up states for tests of heads in training.
#pragma once

#include "support/harness.h"
#include "train/capture.h"
#include "train/layers.h"
#include "train/target_tensors.h"

namespace sluice::test {

// An example of `n` tokens with a prompt of `n_prompt`, and states drawn at random for every layer of the model.
struct MadeUp {
  Example example;
  Captured captured;
};
inline std::unique_ptr<MadeUp> make_up(const HyperParameters& h, int32_t n, int32_t n_prompt, uint64_t seed = 1) {
  auto made = std::make_unique<MadeUp>();
  Dice dice(seed);
  made->example.n_prompt = n_prompt;
  for (int32_t i = 0; i < n; ++i) made->example.tokens.push_back(dice.below(h.n_vocab));
  made->captured.example = &made->example;
  for (int32_t l = 0; l <= h.n_layers; ++l) {
    made->captured.layers.push_back(l);
    auto& states = made->captured.states.emplace_back();
    for (int64_t i = 0; i < int64_t{n} * h.d_model; ++i) states.push_back(static_cast<float>(dice.uniform() * 4 - 2));
  }
  return made;
}

inline TargetTensors tensors_of(const Opened& opened) { return *TargetTensors::open(opened.model); }

// The first `n` tokens as a draft vocabulary.
inline std::vector<Token> first_tokens(int32_t n) {
  std::vector<Token> tokens;
  for (int32_t i = 0; i < n; ++i) tokens.push_back(i * 2 + 1);
  return tokens;
}

inline double distance(const torch::Tensor& a, const torch::Tensor& b) { return (a - b).abs().max().item<double>(); }

}  // namespace sluice::test

// Early exits and draft models: a few layers over the states after layer l of the target, causally, then a norm and an
// output matrix.
//
// PPSD exits after the first stage (l = its last layer); with l = 0 and layers of its own the same is a small model
// that shares the target's embedding: a draft with the target's tokenizer.
#pragma once

#include "train/chain_evaluation.h"
#include "train/options.h"
#include "train/trainee.h"

namespace sluice {

class Shallow : public Trainee {
 public:
  Shallow(const HyperParameters& hparams, const TargetTensors& target, ShallowOptions options,
          std::vector<Token> vocabulary);

  nlohmann::json settings() const override;
  std::vector<int32_t> taps() const override { return {options_.input, hparams_.n_layers}; }
  void begin(const std::function<Captured(size_t)>& example, size_t n) override;
  LossFigures accumulate(const Captured& example, uint64_t draw, double weight) override;
  void evaluate(const Captured& example) override;
  Status write(GgufWriter& file, const MatrixTypes& types) const override;

  // states: [tokens, d], of the input layer. Logits of the tokens after positions first … tokens - 1.
  torch::Tensor forward(const torch::Tensor& states, int64_t first) const;

 private:
  nlohmann::json acceptance() override;
  torch::Tensor after_layers(const torch::Tensor& states) const;  // [tokens, d]

  ShallowOptions options_;
  ChainEvaluation chains_;
  int64_t greedy_ = 0, greedy_steps_ = 0;
};

}  // namespace sluice

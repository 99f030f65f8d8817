// P-EAGLE: EAGLE heads that draft K tokens in one pass.
#pragma once

#include "train/chain_evaluation.h"
#include "train/cod.h"
#include "train/options.h"
#include "train/trainee.h"

namespace sluice {

class PEagle : public Trainee {
 public:
  PEagle(const HyperParameters& hparams, const TargetTensors& target, PEagleOptions options,
         std::vector<Token> vocabulary);

  nlohmann::json settings() const override;
  std::vector<int32_t> taps() const override;
  void begin(const std::function<Captured(size_t)>& example, size_t n) override;
  LossFigures accumulate(const Captured& example, uint64_t draw, double weight) override;
  void evaluate(const Captured& example) override;
  Status write(GgufWriter& file, const MatrixTypes& types) const override;

  torch::Tensor features(const Captured& example) const;  // [tokens, 3 d]
  // States after the last layer of the segment's own rows. [own, d]
  torch::Tensor forward(const torch::Tensor& features, const std::vector<Token>& tokens, const Segment& segment) const;
  torch::Tensor logits(const torch::Tensor& states) const { return output_.logits(states); }

 private:
  nlohmann::json acceptance() override { return chains_.summary(); }
  torch::Tensor fused(const torch::Tensor& features) const;

  PEagleOptions options_;
  torch::Tensor embedding_;  // [vocab, d], the target's; if it is not trained
  ChainEvaluation chains_;
};

}  // namespace sluice

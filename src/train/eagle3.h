// EAGLE-3: one layer over (next token, hidden state) pairs, trained by the training-time test; in llama.cpp's layout.
#pragma once

#include "train/chain_evaluation.h"
#include "train/options.h"
#include "train/trainee.h"

namespace sluice {

class Eagle3 : public Trainee {
 public:
  // `model`: its tokenizer goes into the exported file.
  Eagle3(const ModelFile& model, const TargetTensors& target, Eagle3Options options, std::vector<Token> vocabulary);

  nlohmann::json settings() const override;
  std::vector<int32_t> taps() const override;
  void begin(const std::function<Captured(size_t)>& example, size_t n) override;
  LossFigures accumulate(const Captured& example, uint64_t draw, double weight) override;
  void evaluate(const Captured& example) override;
  Status write(GgufWriter& file, const MatrixTypes& types) const override;

  // Step j of the training-time test: a row at position P takes token P + 1 + j and the state that step j - 1 gave for
  // P, at j = 0 the target's features, fused; it sees the rows of step 0 up to P and its own earlier steps, and guesses
  // token P + 2 + j. Rows first … n - 2 - j of n tokens.
  struct Step {
    torch::Tensor state;  // [rows, d] before the norm
    torch::Tensor logits() const;
    const Output* output = nullptr;
  };
  std::vector<Step> unroll(const torch::Tensor& features, const std::vector<Token>& tokens, int64_t first,
                           int64_t steps) const;
  torch::Tensor features(const Captured& example) const;  // [tokens, 3 d]
  torch::Tensor fused(const torch::Tensor& features) const;

 private:
  nlohmann::json acceptance() override { return chains_.summary(); }
  std::string model_path_;
  Eagle3Options options_;
  torch::Tensor embedding_;  // [vocab, d], the target's
  ChainEvaluation chains_;
};

}  // namespace sluice

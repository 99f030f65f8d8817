// A head in training: what the training loop needs to know of it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "train/capture.h"
#include "train/output.h"

namespace sluice {

// Of the positions of an example that were trained on.
struct LossFigures {
  double sum = 0;  // of the losses, nats
  int64_t count = 0;
};

class Trainee {
 public:
  virtual ~Trainee() = default;

  Parameters& parameters() { return parameters_; }
  // What it was asked to be: a checkpoint of other options is refused.
  virtual nlohmann::json settings() const = 0;
  // The tokens that it can guess, ascending; empty: all.
  const std::vector<Token>& vocabulary() const { return output_.tokens(); }
  // The target's layers whose states it wants.
  virtual std::vector<int32_t> taps() const = 0;

  // Sets initial values that depend on data; called once, not when training is resumed. example(i) captures the i-th of
  // n examples.
  virtual void begin(const std::function<Captured(size_t)>& example, size_t n) {
    static_cast<void>(example), static_cast<void>(n);
  }

  // Adds to the gradients those of weight * (sum of the losses at this example's positions). Everything random depends
  // on `draw` alone.
  virtual LossFigures accumulate(const Captured& example, uint64_t draw, double weight) = 0;

  // How well it guesses on held-out text, as figures of acceptance; one example at a time, then their summary.
  virtual void evaluate(const Captured& example) = 0;
  nlohmann::json summary() {  // and begins anew
    nlohmann::json figures = acceptance();
    closeness_.report(figures);
    return figures;
  }

  // The file that the engine loads.
  virtual Status write(GgufWriter& file, const MatrixTypes& types) const = 0;

 protected:
  // Of the target's shape, over a draft vocabulary (empty: all tokens).
  Trainee(const HyperParameters& hparams, const TargetTensors& target, std::vector<Token> vocabulary)
      : hparams_(hparams), shape_(layer_shape(hparams)), output_(parameters_, shape_, target, std::move(vocabulary)) {}

  // The summary but for how near the distributions are.
  virtual nlohmann::json acceptance() = 0;

  HyperParameters hparams_;  // the target's
  LayerShape shape_;
  Parameters parameters_;
  Output output_;
  Closeness closeness_;
};

}  // namespace sluice

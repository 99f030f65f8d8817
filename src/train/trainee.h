// A head in training: what the training loop needs to know of it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "train/capture.h"
#include "train/parameters.h"

namespace sluice {

// Of the positions of an example that were trained on.
struct LossFigures {
  double sum = 0;  // of the losses, nats
  int64_t count = 0;
};

class Trainee {
 public:
  virtual ~Trainee() = default;

  virtual Parameters& parameters() = 0;
  // What it was asked to be: a checkpoint of other options is refused.
  virtual nlohmann::json settings() const = 0;
  // The tokens that it can guess, ascending; empty: all.
  virtual const std::vector<Token>& vocabulary() const = 0;
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
  virtual nlohmann::json summary() = 0;  // and begins anew

  // The file that the engine loads.
  virtual Status write(GgufWriter& file, const MatrixTypes& types) const = 0;
};

}  // namespace sluice

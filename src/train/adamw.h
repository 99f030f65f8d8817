// AdamW (Loshchilov and Hutter, 2019), with everything that it remembers in the open.
#pragma once

#include "train/parameters.h"

namespace sluice {

class AdamW {
 public:
  struct Options {
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
    double weight_decay = 0.01;  // of matrices
  };
  AdamW(Parameters& parameters, Options options);

  // The norm of all gradients together.
  double gradient_norm() const;
  // One step with gradients times `factor`; clears them.
  void step(double learning_rate, double factor);

  int64_t steps() const { return steps_; }
  // m and v of each parameter, in their order; for checkpoints.
  std::vector<torch::Tensor>& first_moments() { return m_; }
  std::vector<torch::Tensor>& second_moments() { return v_; }
  void set_steps(int64_t steps) { steps_ = steps; }

 private:
  Parameters& parameters_;
  Options options_;
  std::vector<torch::Tensor> m_, v_;
  int64_t steps_ = 0;
};

}  // namespace sluice

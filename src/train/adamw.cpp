#include "train/adamw.h"

#include <cmath>

namespace sluice {

AdamW::AdamW(Parameters& parameters, Options options) : parameters_(parameters), options_(options) {
  for (const auto& entry : parameters.all()) {
    m_.push_back(torch::zeros_like(entry.values));
    v_.push_back(torch::zeros_like(entry.values));
    // From the first step on, as for a parameter that only some examples use: it moves by its moments in the others.
    torch::Tensor values = entry.values;
    if (!values.grad().defined()) values.mutable_grad() = torch::zeros_like(values);
  }
}

double AdamW::gradient_norm() const {
  double sum = 0;
  for (const auto& entry : parameters_.all()) {
    const double norm = entry.values.grad().norm().item<double>();
    sum += norm * norm;
  }
  return std::sqrt(sum);
}

void AdamW::step(double learning_rate, double factor) {
  ++steps_;
  const auto t = static_cast<double>(steps_);
  const double correction1 = 1 - std::pow(options_.beta1, t), correction2 = 1 - std::pow(options_.beta2, t);
  const auto beta1 = static_cast<float>(options_.beta1), beta2 = static_cast<float>(options_.beta2);
  const auto epsilon = static_cast<float>(options_.epsilon), scale = static_cast<float>(factor);
  const auto rate = static_cast<float>(learning_rate / correction1), inverse2 = static_cast<float>(1 / correction2);
  for (size_t i = 0; i < m_.size(); ++i) {
    const torch::Tensor& values = parameters_.all()[i].values;
    const auto kept = static_cast<float>(1 - (values.dim() > 1 ? learning_rate * options_.weight_decay : 0.0));
    const int64_t n = values.numel();
    float *x = values.data_ptr<float>(), *gradient = values.grad().data_ptr<float>();
    float *m = m_[i].data_ptr<float>(), *v = v_[i].data_ptr<float>();
    // Memory is what this waits for, so it's one pass and not one for each operation.
#pragma omp simd
    for (int64_t j = 0; j < n; ++j) {
      const float g = gradient[j] * scale;
      m[j] = beta1 * m[j] + (1 - beta1) * g;
      v[j] = beta2 * v[j] + (1 - beta2) * g * g;
      x[j] = kept * x[j] - rate * m[j] / (std::sqrt(v[j] * inverse2) + epsilon);
      gradient[j] = 0;
    }
  }
}

}  // namespace sluice

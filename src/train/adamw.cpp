#include "train/adamw.h"

#include <cmath>

namespace sluice {

AdamW::AdamW(Parameters& parameters, Options options) : parameters_(parameters), options_(options) {
  for (const auto& entry : parameters.all()) {
    m_.push_back(torch::zeros_like(entry.values));
    v_.push_back(torch::zeros_like(entry.values));
  }
}

double AdamW::gradient_norm() const {
  double sum = 0;
  for (const auto& entry : parameters_.all())
    if (entry.values.grad().defined()) {
      const double norm = entry.values.grad().norm().item<double>();
      sum += norm * norm;
    }
  return std::sqrt(sum);
}

void AdamW::step(double learning_rate, double factor) {
  const torch::NoGradGuard frozen;
  ++steps_;
  const auto t = static_cast<double>(steps_);
  const double correction1 = 1 - std::pow(options_.beta1, t), correction2 = 1 - std::pow(options_.beta2, t);
  for (size_t i = 0; i < m_.size(); ++i) {
    torch::Tensor values = parameters_.all()[i].values;
    torch::Tensor gradient = values.grad();
    if (!gradient.defined()) continue;
    gradient.mul_(factor);
    m_[i].mul_(options_.beta1).add_(gradient, 1 - options_.beta1);
    v_[i].mul_(options_.beta2).addcmul_(gradient, gradient, 1 - options_.beta2);
    if (values.dim() > 1) values.mul_(1 - learning_rate * options_.weight_decay);
    const auto size = (v_[i] / correction2).sqrt_().add_(options_.epsilon);
    values.addcdiv_(m_[i], size, -learning_rate / correction1);
    gradient.zero_();
  }
}

}  // namespace sluice

// How far apart two sets of logits of one text are.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <vector>

namespace sluice::test {

// [token][n_vocab]
using Logits = std::vector<std::vector<float>>;

inline double largest_difference(std::span<const float> a, std::span<const float> b) {
  double most = 0.0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::fabs(static_cast<double>(a[i]) - b[i]));
  return most;
}

inline double mean_square_difference(std::span<const float> a, std::span<const float> b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - b[i];
    sum += difference * difference;
  }
  return sum / static_cast<double>(a.size());
}

inline double rms_difference(std::span<const float> a, std::span<const float> b) {
  return std::sqrt(mean_square_difference(a, b));
}

inline double rms_difference(const Logits& a, const Logits& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += mean_square_difference(a[i], b[i]);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

inline std::vector<double> log_softmax(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float x : logits) sum += std::exp(x - most);
  std::vector<double> out;
  for (const float x : logits) out.push_back(x - most - std::log(sum));
  return out;
}

// KL(p ‖ q), the mean over the tokens of the text.
inline double mean_kl(const Logits& p, const Logits& q) {
  double sum = 0.0;
  for (size_t i = 0; i < p.size(); ++i) {
    const auto log_p = log_softmax(p[i]), log_q = log_softmax(q[i]);
    for (size_t t = 0; t < log_p.size(); ++t) sum += std::exp(log_p[t]) * (log_p[t] - log_q[t]);
  }
  return sum / static_cast<double>(p.size());
}

inline size_t argmax(std::span<const float> x) {
  return static_cast<size_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

// By how much the best leads.
inline float margin(std::span<const float> x) {
  std::vector<float> sorted(x.begin(), x.end());
  std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
  return sorted[0] - sorted[1];
}

}  // namespace sluice::test

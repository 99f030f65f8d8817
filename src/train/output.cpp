#include "train/output.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace sluice {

Output::Output(Parameters& parameters, const LayerShape& shape, const TargetTensors& target, std::vector<Token> tokens)
    : parameters_(parameters), epsilon_(shape.epsilon), tokens_(std::move(tokens)) {
  const int64_t d = shape.d_model;
  const auto all = target.floats("output.weight");
  n_vocab_ = static_cast<int64_t>(all.size()) / d;
  target_output_ = to_tensor(all, {n_vocab_, d});
  target_norm_ = to_tensor(target.floats("output_norm.weight"), {d});
  std::vector<int64_t> ids(tokens_.begin(), tokens_.end());
  if (ids.empty()) {
    ids.resize(static_cast<size_t>(n_vocab_));
    std::iota(ids.begin(), ids.end(), int64_t{0});
  }
  ids_ = torch::tensor(ids, torch::kLong);
  target_rows_ = tokens_.empty() ? target_output_ : target_output_.index_select(0, ids_);
  parameters.add("output_norm.weight", target_norm_);
  parameters.add("output.weight", target_rows_);
}

torch::Tensor Output::logits(const torch::Tensor& x) const {
  return product(rms_norm(x, parameters_["output_norm.weight"], epsilon_), parameters_["output.weight"])
      .to(torch::kFloat);
}

torch::Tensor Output::target_probabilities(const torch::Tensor& last_states) const {
  const torch::NoGradGuard frozen;
  return torch::softmax(product(rms_norm(last_states, target_norm_, epsilon_), target_rows_), -1);
}

torch::Tensor Output::target_logits(const torch::Tensor& last_states) const {
  const torch::NoGradGuard frozen;
  return product(rms_norm(last_states, target_norm_, epsilon_), target_output_);
}

void Output::begin_behind(const torch::Tensor& map) {
  const torch::NoGradGuard frozen;
  parameters_["output_norm.weight"].fill_(1.0);
  parameters_["output.weight"].copy_(torch::matmul(target_rows_ * target_norm_, map));
}

torch::Tensor Output::divergence(const torch::Tensor& logits, const torch::Tensor& target_probabilities) const {
  const auto& p = target_probabilities;
  const auto own = (p * torch::log(p.clamp_min(1e-30))).sum();
  return own - (p * torch::log_softmax(logits, -1)).sum();
}

std::vector<Token> Output::guesses(const torch::Tensor& logits) const {
  const auto best = ids_.index_select(0, logits.argmax(-1));
  const auto* ids = best.data_ptr<int64_t>();
  std::vector<Token> tokens;
  for (int64_t i = 0; i < best.numel(); ++i) tokens.push_back(static_cast<Token>(ids[i]));
  return tokens;
}

std::vector<double> Output::overlaps(const torch::Tensor& logits, const torch::Tensor& target_logits,
                                     int64_t top_k) const {
  const auto truncated = [&](const torch::Tensor& of) {
    const auto floor =
        std::get<0>(of.topk(std::min(top_k, of.size(-1)), -1)).narrow(-1, std::min(top_k, of.size(-1)) - 1, 1);
    return torch::softmax(of.masked_fill(of < floor, -std::numeric_limits<float>::infinity()), -1);
  };
  const auto p = truncated(target_logits).index_select(-1, ids_), q = truncated(logits);
  const auto sums = torch::minimum(p, q).sum(-1).to(torch::kDouble).contiguous();
  return {sums.data_ptr<double>(), sums.data_ptr<double>() + sums.numel()};
}

void Closeness::add(const Output& output, const torch::Tensor& logits, const torch::Tensor& last_states) {
  divergence_ += output.divergence(logits, output.target_probabilities(last_states)).item<double>();
  for (const double o : output.overlaps(logits, output.target_logits(last_states), 50)) overlap_ += o;
  positions_ += logits.size(0);
}

void Closeness::report(nlohmann::json& summary) {
  const auto n = static_cast<double>(std::max<int64_t>(1, std::exchange(positions_, 0)));
  summary["kl"] = std::exchange(divergence_, 0.0) / n;
  summary["overlap"] = std::exchange(overlap_, 0.0) / n;
}

}  // namespace sluice

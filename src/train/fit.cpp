#include "train/fit.h"

namespace sluice {

void LeastSquares::add(const torch::Tensor& x, const torch::Tensor& y) {
  const auto xx = torch::matmul(x.t(), x), xy = torch::matmul(x.t(), y);
  squares_ = squares_.defined() ? squares_ + xx : xx;
  products_ = products_.defined() ? products_ + xy : xy;
}

torch::Tensor LeastSquares::solve() const {
  const auto ridge = squares_.diagonal().mean() * 1e-2;
  return torch::linalg_solve(squares_ + ridge * torch::eye(squares_.size(0)), products_).t().contiguous();
}

void fit_features(const std::vector<std::pair<torch::Tensor, torch::Tensor>>& data, const LayerShape& shape,
                  torch::Tensor norm, torch::Tensor fc) {
  const torch::NoGradGuard frozen;
  const int64_t d = shape.d_model;
  auto sizes = torch::zeros({3});
  double scale = 0, rows = 0;
  for (const auto& [all_x, all_y] : data) {
    if (all_x.size(0) <= kFitSkips) continue;
    const auto x = rms_norm(all_x.slice(0, kFitSkips), shape.epsilon), y = all_y.slice(0, kFitSkips);
    sizes += x.view({-1, 3, d}).pow(2).mean(-1).sqrt().sum(0);
    scale += y.pow(2).mean(-1).sqrt().sum().item<double>();
    rows += static_cast<double>(y.size(0));
  }
  if (rows == 0) return;
  norm.copy_((rows / sizes).unsqueeze(1).expand({3, d}).reshape({3 * d}));
  LeastSquares fit;
  for (const auto& [all_x, all_y] : data)
    if (all_x.size(0) > kFitSkips)
      fit.add(rms_norm(all_x.slice(0, kFitSkips), norm, shape.epsilon),
              rms_norm(all_y.slice(0, kFitSkips), shape.epsilon));
  fc.copy_(fit.solve() * (scale / rows));
}

}  // namespace sluice

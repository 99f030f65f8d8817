// Least squares: how the matrices that fuse features begin.
#pragma once

#include <utility>
#include <vector>

#include "train/layers.h"

namespace sluice {

// Sums of a least-squares problem y = W x, gathered a bit at a time.
class LeastSquares {
 public:
  // x: [n, n_in], y: [n, n_out].
  void add(const torch::Tensor& x, const torch::Tensor& y);
  bool empty() const { return !squares_.defined(); }
  torch::Tensor solve() const;  // [n_out, n_in]; with a small ridge

 private:
  torch::Tensor squares_, products_;
};

// The first tokens of a sequence have states far larger than all others; fits leave them out.
inline constexpr int64_t kFitSkips = 4;

// For features [tokens, 3 d] and the states [tokens, d] that a layer of the target takes: sets `norm` [3 d] so that the
// three layers weigh alike, and `fc` [d, 3 d] to the map from the normed features to the states, at their usual size.
void fit_features(const std::vector<std::pair<torch::Tensor, torch::Tensor>>& data, const LayerShape& shape,
                  torch::Tensor norm, torch::Tensor fc);

}  // namespace sluice

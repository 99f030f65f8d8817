#include "train/near_far.h"

#include <gtest/gtest.h>

#include <cmath>

#include "train/heads.h"

namespace sluice::test {
namespace {

constexpr int64_t kHeads = 6, kKvHeads = 2, kHeadDim = 4;

struct Inputs {
  torch::Tensor q, near_k, near_v, far_k, far_v;
  std::vector<torch::Tensor> all() const { return {q, near_k, near_v, far_k, far_v}; }
};

Inputs draw(int64_t rows, int64_t queries, int64_t near, int64_t far) {
  const auto random = [](std::vector<int64_t> sizes) { return torch::randn(sizes).requires_grad_(); };
  return {random({rows, queries, kHeads, kHeadDim}), random({near, queries, kKvHeads, kHeadDim}),
          random({near, queries, kKvHeads, kHeadDim}), random({far, kKvHeads, kHeadDim}),
          random({far, kKvHeads, kHeadDim})};
}

// Row by row and head by head, as the header says it.
torch::Tensor in_words(const Inputs& x, NearFar sees) {
  const int64_t near = x.near_k.size(0), far = x.far_k.size(0);
  std::vector<torch::Tensor> sums;
  for (int64_t row = 0; row < x.q.size(0); ++row)
    for (int64_t query = 0; query < x.q.size(1); ++query)
      for (int64_t head = 0; head < kHeads; ++head) {
        const int64_t kv = head / (kHeads / kKvHeads);
        std::vector<torch::Tensor> keys, values;
        for (int64_t r = row; r < near; ++r)
          if (r == row || r < sees.near_of_first + query) {
            keys.push_back(x.near_k[r][query][kv]), values.push_back(x.near_v[r][query][kv]);
          }
        for (int64_t t = 0; t < std::min(far, sees.far_of_first + query); ++t) {
          keys.push_back(x.far_k[t][kv]), values.push_back(x.far_v[t][kv]);
        }
        const auto scores = torch::mv(torch::stack(keys), x.q[row][query][head]) / std::sqrt(double{kHeadDim});
        sums.push_back(torch::mv(torch::stack(values).t(), torch::softmax(scores, 0)));
      }
  return torch::stack(sums).view({x.q.size(0), x.q.size(1), kHeads * kHeadDim});
}

void expect_equal(const Inputs& x, NearFar sees) {
  const auto expected = in_words(x, sees);
  const auto got = near_far_attention(x.q, x.near_k, x.near_v, x.far_k, x.far_v, sees);
  EXPECT_LT(distance(got, expected), 1e-5);
  const auto direction = torch::randn(expected.sizes());
  const auto a = torch::autograd::grad({got}, x.all(), {direction}, {}, false, /*allow_unused=*/true);
  const auto b = torch::autograd::grad({expected}, x.all(), {direction}, {}, false, /*allow_unused=*/true);
  for (size_t i = 0; i < a.size(); ++i)
    if (b[i].defined() && b[i].numel() > 0) {
      EXPECT_LT(distance(a[i], b[i]), 1e-5) << "gradient " << i;
    }
}

TEST(NearFarAttention, EqualsBruteForceAndSoDoItsGradients) {
  torch::manual_seed(1);
  for (const int64_t rows : {1, 3}) {
    expect_equal(draw(rows, 5, 3, 9), {.far_of_first = 2, .near_of_first = 4});
    expect_equal(draw(rows, 5, 3, 2), {.far_of_first = -3, .near_of_first = 1});  // a sequence's first tokens
    expect_equal(draw(rows, 4, 3, 0), {.far_of_first = -2, .near_of_first = 1});
    expect_equal(draw(rows, 45, 3, 60), {.far_of_first = 9, .near_of_first = 12});  // several blocks
  }
}

TEST(NearFarAttention, WithoutNearRowsIsPlainlyCausal) {
  torch::manual_seed(2);
  expect_equal(draw(1, 40, 0, 40), {.far_of_first = 1});
}

// The derivatives of sum(direction * f(x)) against differences.
void expect_derivatives(const std::function<torch::Tensor(const torch::Tensor&)>& f, torch::Tensor x) {
  const auto direction = torch::randn(f(x).sizes());
  x.requires_grad_();
  const auto gradient = torch::autograd::grad({f(x)}, {x}, {direction})[0];
  const torch::NoGradGuard frozen;
  const auto towards = torch::randn(x.sizes());
  const double step = 1e-2, along = ((f(x + step * towards) - f(x - step * towards)) * direction).sum().item<double>();
  EXPECT_NEAR((gradient * towards).sum().item<double>(), along / (2 * step), 2e-2);
}

TEST(Elementwise, GradientsAreDerivatives) {
  torch::manual_seed(3);
  const auto x = torch::randn({7, 16}), weight = torch::rand({16}) + 0.5;
  expect_derivatives([&](const torch::Tensor& v) { return rms_norm(v, weight, 1e-5); }, x.clone());
  expect_derivatives([&](const torch::Tensor& v) { return rms_norm(x, v, 1e-5); }, weight.clone());
  EXPECT_LT(distance(rms_norm(x, weight, 1e-5), rms_norm(x, 1e-5) * weight), 1e-6);
  const auto positions = torch::tensor({3, -1, 0, 900, 5, 5, 2}, torch::kLong);
  for (const bool halves : {false, true}) {
    const auto turned = [&](const torch::Tensor& v) { return turn(v.view({7, 2, 8}), positions, 1e4, halves); };
    expect_derivatives(turned, x.clone());
    for (int64_t i = 0; i < 7; ++i) {  // pair 1 turns by position / base^(1 / 4)
      const double angle = static_cast<double>(positions[i].item<int64_t>()) * 0.1;
      const int64_t first = halves ? 1 : 2, second = halves ? 5 : 3;
      const auto v = x[i].view({2, 8})[1];
      const double a = v[first].item<double>(), b = v[second].item<double>();
      EXPECT_NEAR(turned(x)[i][1][first].item<double>(), a * std::cos(angle) - b * std::sin(angle), 1e-4);
      EXPECT_NEAR(turned(x)[i][1][second].item<double>(), b * std::cos(angle) + a * std::sin(angle), 1e-4);
    }
  }
}

}  // namespace
}  // namespace sluice::test

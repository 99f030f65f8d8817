#include "train/elementwise.h"

#include <cmath>

namespace sluice {

namespace {

using Context = torch::autograd::AutogradContext;
using Tensors = torch::autograd::tensor_list;

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static torch::Tensor forward(Context* context, const torch::Tensor& x, const torch::Tensor& weight, double epsilon) {
    const int64_t d = x.size(-1), rows = x.numel() / d;
    auto y = torch::empty_like(x), inverse = torch::empty({rows});  // of the root mean squares
    const float *from = x.data_ptr<float>(), *w = weight.data_ptr<float>();
    float *to = y.data_ptr<float>(), *inverses = inverse.data_ptr<float>();
    for (int64_t i = 0; i < rows; ++i, from += d, to += d) {
      float squares = 0;
#pragma omp simd reduction(+ : squares)
      for (int64_t j = 0; j < d; ++j) squares += from[j] * from[j];
      const float r = inverses[i] = 1.0f / std::sqrt(squares / static_cast<float>(d) + static_cast<float>(epsilon));
#pragma omp simd
      for (int64_t j = 0; j < d; ++j) to[j] = from[j] * r * w[j];
    }
    context->save_for_backward({x, weight, inverse});
    return y;
  }

  // With n = x / rms and g' = g * weight: dx = (g' - n * mean(g' n)) / rms, and dweight is the sum of g * n.
  static Tensors backward(Context* context, Tensors gradients) {
    const auto saved = context->get_saved_variables();
    const torch::Tensor &x = saved[0], g = gradients[0].contiguous();
    const int64_t d = x.size(-1), rows = x.numel() / d;
    auto dx = torch::empty_like(x), dw = torch::zeros({d});
    const float *from = x.data_ptr<float>(), *w = saved[1].data_ptr<float>(), *of = g.data_ptr<float>();
    float *to = dx.data_ptr<float>(), *sums = dw.data_ptr<float>();
    for (int64_t i = 0; i < rows; ++i, from += d, of += d, to += d) {
      const float r = saved[2].data_ptr<float>()[i];
      float along = 0;
#pragma omp simd reduction(+ : along)
      for (int64_t j = 0; j < d; ++j) {
        const float product = of[j] * from[j] * r;
        sums[j] += product;
        along += product * w[j];
      }
      const float mean = along / static_cast<float>(d);
#pragma omp simd
      for (int64_t j = 0; j < d; ++j) to[j] = (of[j] * w[j] - from[j] * r * mean) * r;
    }
    return {dx, dw, torch::Tensor()};
  }
};

// x: [rows, heads, head_dim]; cosines, sines: [rows, head_dim / 2].
torch::Tensor turned(const torch::Tensor& x, const torch::Tensor& cosines, const torch::Tensor& sines, bool halves) {
  const int64_t n_heads = x.size(1), half = x.size(2) / 2, step = halves ? 1 : 2, apart = halves ? half : 1;
  auto y = torch::empty_like(x);
  const float* from = x.data_ptr<float>();
  float* to = y.data_ptr<float>();
  for (int64_t i = 0; i < x.size(0); ++i) {
    const float *c = cosines.data_ptr<float>() + i * half, *s = sines.data_ptr<float>() + i * half;
    for (int64_t head = 0; head < n_heads; ++head, from += 2 * half, to += 2 * half) {
#pragma omp simd
      for (int64_t j = 0; j < half; ++j) {
        const float a = from[j * step], b = from[j * step + apart];
        to[j * step] = a * c[j] - b * s[j];
        to[j * step + apart] = b * c[j] + a * s[j];
      }
    }
  }
  return y;
}

struct Turn : torch::autograd::Function<Turn> {
  static torch::Tensor forward(Context* context, const torch::Tensor& x, const torch::Tensor& cosines,
                               const torch::Tensor& sines, bool halves) {
    context->save_for_backward({cosines, sines});
    context->saved_data["halves"] = halves;
    return turned(x, cosines, sines, halves);
  }
  static Tensors backward(Context* context, Tensors gradients) {
    const auto saved = context->get_saved_variables();
    return {turned(gradients[0].contiguous(), saved[0], -saved[1], context->saved_data["halves"].toBool()),
            torch::Tensor(), torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

torch::Tensor rms_norm(const torch::Tensor& x, double epsilon) {
  return x * torch::rsqrt(x.pow(2).mean(-1, /*keepdim=*/true) + epsilon);
}

torch::Tensor rms_norm(const torch::Tensor& x, const torch::Tensor& weight, double epsilon) {
  return RmsNorm::apply(x.to(torch::kFloat).contiguous(), weight, epsilon);
}

torch::Tensor turn(const torch::Tensor& x, const torch::Tensor& positions, double base, bool halves) {
  if (positions.numel() == 0) return x;
  const int64_t half = x.size(-1) / 2, first = positions.min().item<int64_t>();
  const auto frequency =
      torch::exp(torch::arange(half, torch::kDouble) * (-std::log(base) / static_cast<double>(half)));
  // Many rows have the same position.
  const auto each = torch::arange(first, positions.max().item<int64_t>() + 1, torch::kDouble);
  const auto angles = each.unsqueeze(1) * frequency, at = positions.reshape({-1}) - first;
  const auto of_rows = [&](const torch::Tensor& values) { return values.to(torch::kFloat).index_select(0, at); };
  return Turn::apply(x.to(torch::kFloat).reshape({at.size(0), x.size(-2), x.size(-1)}).contiguous(),
                     of_rows(torch::cos(angles)), of_rows(torch::sin(angles)), halves)
      .view(x.sizes());
}

}  // namespace sluice

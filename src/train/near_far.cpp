#include "train/near_far.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice {

namespace {

constexpr int64_t kBlockRows = 96;  // of a block: its scores for some hundred far rows stay in the second-level cache

float dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

void add_scaled(float* to, const float* from, float factor, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

// [rows, Q, kv_heads * per, head_dim] to [kv_heads, Q, rows * per, head_dim], contiguous; and back.
torch::Tensor by_head(const torch::Tensor& x, int64_t kv_heads) {
  const int64_t per = x.size(2) / kv_heads;
  return x.reshape({x.size(0), x.size(1), kv_heads, per, x.size(3)})
      .permute({2, 1, 0, 3, 4})
      .reshape({kv_heads, x.size(1), x.size(0) * per, x.size(3)})
      .contiguous();
}
torch::Tensor by_row(const torch::Tensor& x, int64_t rows, int64_t per) {
  const int64_t kv_heads = x.size(0), n = x.size(1), h = x.size(3);
  return x.view({kv_heads, n, rows, per, h}).permute({2, 1, 0, 3, 4}).reshape({rows, n, kv_heads * per, h});
}

// One block of queries under one key-value head, with the sizes that every loop needs. Scores and weights of a block:
// [queries * A * group, a + far], the near rows' first.
struct Block {
  int64_t head, begin, end;  // queries
  int64_t near, far;         // rows that a query of the block may see
  int64_t rows, group;       // A; heads of a row
  int64_t scores() const { return (end - begin) * rows * group; }
};

class Shape {
 public:
  Shape(int64_t kv_heads, int64_t n_queries, int64_t rows, int64_t group, int64_t near, int64_t far, NearFar sees)
      : near_(near), far_(far), sees_(sees) {
    const int64_t step = std::max<int64_t>(1, kBlockRows / (rows * group));
    for (int64_t head = 0; head < kv_heads; ++head)
      for (int64_t begin = 0; begin < n_queries; begin += step) {
        const int64_t end = std::min(n_queries, begin + step);
        blocks_.push_back({head, begin, end, near, far_of(end - 1), rows, group});
      }
  }
  const std::vector<Block>& blocks() const { return blocks_; }
  int64_t far_of(int64_t query) const { return std::clamp<int64_t>(sees_.far_of_first + query, 0, far_); }
  int64_t near_of(int64_t query) const { return std::clamp<int64_t>(sees_.near_of_first + query, 0, near_); }

  // Calls work(score row, query, near row) for each near row that a score row sees.
  template <typename Work>
  void for_each_near(const Block& b, const Work& work) const {
    if (b.near == 0) return;
    int64_t at = 0;
    for (int64_t query = b.begin; query < b.end; ++query)
      for (int64_t row = 0; row < b.rows; ++row)
        for (int64_t g = 0; g < b.group; ++g, ++at)
          for (int64_t r = row; r < std::max(row + 1, near_of(query)); ++r) work(at, query, r);
  }

 private:
  int64_t near_, far_;
  NearFar sees_;
  std::vector<Block> blocks_;
};

// Views of one block: q, the far rows and whatever else is by head.
torch::Tensor of_block(const torch::Tensor& by_head, const Block& b) {
  return by_head[b.head].slice(0, b.begin, b.end).reshape({b.scores(), by_head.size(3)});
}
torch::Tensor far_of(const torch::Tensor& far, const Block& b) { return far[b.head].slice(0, 0, b.far); }

// The products of near rows, which are too small for a library: the scores of a block from q and k, or the weights'
// gradients from those of the sums and v.
void near_products(const Shape& shape, const Block& b, const torch::Tensor& of_rows, const torch::Tensor& near,
                   torch::Tensor out) {
  const int64_t h = of_rows.size(1);
  const float *x = of_rows.data_ptr<float>(), *y = b.near > 0 ? near[b.head].data_ptr<float>() : nullptr;
  float* to = out.data_ptr<float>();
  const int64_t stride = out.stride(0);
  shape.for_each_near(b, [&](int64_t at, int64_t query, int64_t r) {
    to[at * stride + r] = dot(x + at * h, y + (query * b.near + r) * h, h);
  });
}

// sums += weights * near rows.
void add_near_sums(const Shape& shape, const Block& b, const torch::Tensor& weights, const torch::Tensor& near,
                   torch::Tensor sums) {
  const int64_t h = sums.size(1), stride = weights.stride(0);
  const float *w = weights.data_ptr<float>(), *y = b.near > 0 ? near[b.head].data_ptr<float>() : nullptr;
  float* to = sums.data_ptr<float>();
  shape.for_each_near(b, [&](int64_t at, int64_t query, int64_t r) {
    add_scaled(to + at * h, y + (query * b.near + r) * h, w[at * stride + r], h);
  });
}

// near rows += weights^T * rows of the block.
void add_to_near(const Shape& shape, const Block& b, const torch::Tensor& weights, const torch::Tensor& of_rows,
                 torch::Tensor near) {
  const int64_t h = of_rows.size(1), stride = weights.stride(0);
  const float *w = weights.data_ptr<float>(), *x = of_rows.data_ptr<float>();
  float* to = b.near > 0 ? near[b.head].data_ptr<float>() : nullptr;
  shape.for_each_near(b, [&](int64_t at, int64_t query, int64_t r) {
    add_scaled(to + (query * b.near + r) * h, x + at * h, w[at * stride + r], h);
  });
}

// Softmax weights of a block; what is not seen has none.
torch::Tensor weights_of(const Shape& shape, const Block& b, const torch::Tensor& q, const torch::Tensor& near_k,
                         const torch::Tensor& far_k) {
  auto scores = torch::full({b.scores(), b.near + b.far}, -std::numeric_limits<float>::infinity());
  if (b.far > 0) {
    auto far = scores.narrow(1, b.near, b.far);
    torch::mm_out(far, q, far_of(far_k, b).t());
    for (int64_t query = b.begin, per = b.rows * b.group; query < b.end; ++query)
      if (const int64_t seen = shape.far_of(query); seen < b.far)
        far.slice(0, (query - b.begin) * per, (query - b.begin + 1) * per)
            .slice(1, seen)
            .fill_(-std::numeric_limits<float>::infinity());
  }
  near_products(shape, b, q, near_k, scores);
  return torch::softmax(scores, -1);
}

struct NearFarAttention : torch::autograd::Function<NearFarAttention> {
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::tensor_list;

  static Shape shape_of(const torch::Tensor& q, const torch::Tensor& near_k, const torch::Tensor& far_k, NearFar sees) {
    const int64_t kv = far_k.size(1);
    return {kv, q.size(1), q.size(0), q.size(2) / kv, near_k.size(0), far_k.size(0), sees};
  }
  // All of it by head; q at the scores' scale.
  static Tensors arranged(const torch::Tensor& q, const Tensors& near, const Tensors& far) {
    const int64_t kv = far[0].size(1);
    const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
    Tensors all = {by_head(q, kv) * scale};
    for (const auto& x : near) all.push_back(by_head(x, kv));
    for (const auto& x : far) all.push_back(x.permute({1, 0, 2}).contiguous());
    return all;
  }

  static torch::Tensor forward(Context* context, const torch::Tensor& q, const torch::Tensor& near_k,
                               const torch::Tensor& near_v, const torch::Tensor& far_k, const torch::Tensor& far_v,
                               int64_t far_of_first, int64_t near_of_first) {
    const Shape shape = shape_of(q, near_k, far_k, {far_of_first, near_of_first});
    Tensors saved = arranged(q, {near_k, near_v}, {far_k, far_v});
    const Tensors x = saved;
    auto sums = torch::empty_like(x[0]);
    for (const Block& b : shape.blocks()) {
      const auto weights = weights_of(shape, b, of_block(x[0], b), x[1], x[3]);
      auto out = of_block(sums, b);
      if (b.far > 0)
        torch::mm_out(out, weights.narrow(1, b.near, b.far), far_of(x[4], b));
      else
        out.zero_();
      add_near_sums(shape, b, weights, x[2], out);
      saved.push_back(weights);
    }
    context->save_for_backward(saved);
    context->saved_data["sees"] = std::vector<int64_t>{far_of_first, near_of_first, q.size(0)};
    return by_row(sums, q.size(0), q.size(2) / far_k.size(1)).flatten(2);
  }

  static Tensors backward(Context* context, Tensors gradients) {
    const Tensors x = context->get_saved_variables();
    const auto sees = context->saved_data["sees"].toIntVector();
    const auto &q = x[0], &near_k = x[1], &near_v = x[2], &far_k = x[3], &far_v = x[4];
    const int64_t kv = q.size(0), h = q.size(3), rows = sees[2], group = q.size(2) / rows;
    const Shape shape(kv, q.size(1), rows, group, near_k.size(2), far_k.size(1), {sees[0], sees[1]});
    const auto g = by_head(gradients[0].reshape({rows, q.size(1), kv * group, h}), kv);
    auto dq = torch::empty_like(q), near_dk = torch::zeros_like(near_k), near_dv = torch::zeros_like(near_v),
         far_dk = torch::zeros_like(far_k), far_dv = torch::zeros_like(far_v);
    for (size_t i = 0; i < shape.blocks().size(); ++i) {
      const Block& b = shape.blocks()[i];
      const auto &weights = x[5 + i], own_q = of_block(q, b), own_g = of_block(g, b);
      auto d = torch::zeros_like(weights);  // of the weights, then of the scores
      auto far_d = d.narrow(1, b.near, b.far);
      if (b.far > 0) torch::mm_out(far_d, own_g, far_of(far_v, b).t());
      near_products(shape, b, own_g, near_v, d);
      d.mul_(weights);
      d.sub_(weights * d.sum(-1, /*keepdim=*/true));
      auto own_dq = of_block(dq, b);
      if (b.far > 0) {
        torch::mm_out(own_dq, far_d, far_of(far_k, b));
        far_of(far_dk, b).addmm_(far_d.t(), own_q);
        far_of(far_dv, b).addmm_(weights.narrow(1, b.near, b.far).t(), own_g);
      } else {
        own_dq.zero_();
      }
      add_near_sums(shape, b, d, near_k, own_dq);
      add_to_near(shape, b, d, own_q, near_dk);
      add_to_near(shape, b, weights, own_g, near_dv);
    }
    dq.mul_(1.0 / std::sqrt(static_cast<double>(h)));
    const auto shared = [](const torch::Tensor& far) { return far.permute({1, 0, 2}).contiguous(); };
    return {by_row(dq, rows, group),
            by_row(near_dk, near_k.size(2), 1),
            by_row(near_dv, near_v.size(2), 1),
            shared(far_dk),
            shared(far_dv),
            torch::Tensor(),
            torch::Tensor()};
  }
};

}  // namespace

torch::Tensor near_far_attention(const torch::Tensor& q, const torch::Tensor& near_k, const torch::Tensor& near_v,
                                 const torch::Tensor& far_k, const torch::Tensor& far_v, NearFar sees) {
  const auto f32 = [](const torch::Tensor& x) { return x.to(torch::kFloat); };  // products may have been bfloat16
  return NearFarAttention::apply(f32(q), f32(near_k), f32(near_v), f32(far_k), f32(far_v), sees.far_of_first,
                                 sees.near_of_first);
}

}  // namespace sluice

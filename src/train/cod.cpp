#include "train/cod.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/random.h"
#include "base/result.h"
#include "train/layers.h"

namespace sluice {

bool sees(const CodRow& row, const CodRow& other) {
  if (other.depth == 0) return other.position <= row.position - row.depth;
  return other.depth <= row.depth && row.position - other.position == row.depth - other.depth;
}

namespace {

torch::Tensor column(const std::vector<CodRow>& rows, int64_t CodRow::*field) {
  std::vector<int64_t> values;
  for (const CodRow& row : rows) values.push_back(row.*field);
  return torch::tensor(values, torch::kLong);
}

}  // namespace

torch::Tensor sees(const torch::Tensor& positions, const torch::Tensor& depths, const torch::Tensor& other_positions,
                   const torch::Tensor& other_depths) {
  const auto p = positions.unsqueeze(1), d = depths.unsqueeze(1);
  const auto q = other_positions.unsqueeze(0), e = other_depths.unsqueeze(0);
  const auto context = e.eq(0).logical_and(q <= p - d);
  const auto chain = e.ge(1).logical_and(e <= d).logical_and((p - q).eq(d - e));
  return context.logical_or(chain);
}

torch::Tensor sees(const std::vector<CodRow>& rows, const std::vector<CodRow>& others) {
  return sees(column(rows, &CodRow::position), column(rows, &CodRow::depth), column(others, &CodRow::position),
              column(others, &CodRow::depth));
}

namespace {

struct FrugalAttention : torch::autograd::Function<FrugalAttention> {
  static constexpr int64_t kScores = 1 << 20;  // of a head at a time
  static int64_t chunk(int64_t rows) { return std::max<int64_t>(16, kScores / rows); }

  // Of queries begin … end - 1; entry by entry, which compiled takes a seventh of the time of tensor operations.
  static torch::Tensor mask(const torch::Tensor& positions, const torch::Tensor& depths, int64_t begin, int64_t end) {
    const int64_t n = positions.size(0);
    auto mask = torch::empty({end - begin, n});
    const int64_t *p = positions.data_ptr<int64_t>(), *d = depths.data_ptr<int64_t>();
    float* to = mask.data_ptr<float>();
    for (int64_t i = begin; i < end; ++i)
      for (int64_t k = 0; k < n; ++k)
        *to++ = sees({p[i], d[i]}, {p[k], d[k]}) ? 0.0f : -std::numeric_limits<float>::infinity();
    return mask;
  }

  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& q,
                               const torch::Tensor& k, const torch::Tensor& v, const torch::Tensor& positions,
                               const torch::Tensor& depths) {
    context->save_for_backward({q, k, v, positions, depths});
    const int64_t n = q.size(0), step = chunk(n);
    std::vector<torch::Tensor> parts;
    for (int64_t begin = 0; begin < n; begin += step) {
      const int64_t end = std::min(n, begin + step);
      parts.push_back(attention(q.slice(0, begin, end), k, v, mask(positions, depths, begin, end)));
    }
    return torch::cat(parts);
  }

  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto k = saved[1].detach().requires_grad_(), v = saved[2].detach().requires_grad_();
    auto dk = torch::zeros_like(k), dv = torch::zeros_like(v);
    std::vector<torch::Tensor> dq;
    const int64_t n = saved[0].size(0), step = chunk(n);
    for (int64_t begin = 0; begin < n; begin += step) {
      const int64_t end = std::min(n, begin + step);
      const torch::AutoGradMode recording(true);
      const auto q = saved[0].slice(0, begin, end).detach().requires_grad_();
      const auto out = attention(q, k, v, mask(saved[3], saved[4], begin, end));
      const auto of = torch::autograd::grad({out}, {q, k, v}, {gradients[0].slice(0, begin, end)});
      dq.push_back(of[0]);
      dk += of[1];
      dv += of[2];
    }
    return {torch::cat(dq), dk, dv, torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

torch::Tensor frugal_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                               const torch::Tensor& positions, const torch::Tensor& depths) {
  const auto f32 = [](const torch::Tensor& x) { return x.to(torch::kFloat); };  // sums of many parts follow
  return FrugalAttention::apply(f32(q), f32(k), f32(v), positions, depths);
}

AmortisedMask::AmortisedMask(int64_t max_length, int64_t groups) : groups_(groups) {
  std::vector<CodRow> all;
  for (int64_t position = 0; position < max_length; ++position)
    for (int64_t depth = 0; depth < groups; ++depth) all.push_back({position, depth});
  sees_ = sluice::sees(all, all);
}

torch::Tensor AmortisedMask::index(const std::vector<CodRow>& rows) const {
  std::vector<int64_t> values;
  for (const CodRow& row : rows) values.push_back(row.position * groups_ + row.depth);
  return torch::tensor(values, torch::kLong);
}

torch::Tensor AmortisedMask::select(const std::vector<CodRow>& rows, const std::vector<CodRow>& others) const {
  return sees_.index_select(0, index(rows)).index_select(1, index(others));
}

std::vector<std::vector<int64_t>> sample_cod(int64_t first, int64_t last, int64_t groups, double retention,
                                             uint64_t draw) {
  std::vector<std::vector<int64_t>> kept(1);
  for (int64_t p = first; p < last; ++p) kept[0].push_back(p);
  for (int64_t d = 1; d < groups; ++d) {
    std::vector<int64_t> candidates;
    for (const int64_t p : kept.back())
      if (p + 1 < last) candidates.push_back(p + 1);
    const auto wanted = static_cast<size_t>(
        std::llround(static_cast<double>(last - first) * std::pow(retention, static_cast<double>(d))));
    std::vector<std::pair<double, int64_t>> drawn;
    for (const int64_t p : candidates)
      drawn.emplace_back(uniform({.seed = draw,
                                  .choice = static_cast<uint32_t>(d),
                                  .position = static_cast<uint32_t>(p),
                                  .purpose = Purpose::kDraft},
                                 0),
                         p);
    std::sort(drawn.begin(), drawn.end());
    drawn.resize(std::min(drawn.size(), wanted));
    auto& positions = kept.emplace_back();
    for (const auto& [u, p] : drawn) positions.push_back(p);
    std::sort(positions.begin(), positions.end());
  }
  return kept;
}

std::vector<Segment> partition(const std::vector<std::vector<int64_t>>& kept, int64_t segments) {
  SLUICE_CHECK(!kept.empty() && segments > 0, "rows and segments");
  const auto& all = kept.front();
  const int64_t first = all.empty() ? 0 : all.front();
  const auto n = static_cast<int64_t>(all.size());
  const auto segment_of = [&](int64_t position) {
    return std::min(segments - 1, (position - first) * segments / std::max<int64_t>(1, n));
  };
  std::vector<Segment> made(static_cast<size_t>(segments));
  std::unordered_map<int64_t, int64_t> before, now;  // position of a depth: its segment
  for (int64_t d = 0; d < static_cast<int64_t>(kept.size()); ++d) {
    now.clear();
    for (const int64_t p : kept[static_cast<size_t>(d)]) {
      const int64_t s = d < 2 ? segment_of(p) : before.at(p - 1);
      now.emplace(p, s);
      made[static_cast<size_t>(s)].own.push_back({p, d});
    }
    before = now;
  }
  for (int64_t s = 0; s < segments; ++s) {
    // Up to the first own position; the own rows of depth 0 follow.
    const auto begin = std::find_if(all.begin(), all.end(), [&](int64_t p) { return segment_of(p) >= s; });
    const int64_t end = begin == all.end() ? first + n : *begin;
    for (int64_t p = 0; p < end; ++p) made[static_cast<size_t>(s)].context.push_back({p, 0});
  }
  return made;
}

}  // namespace sluice

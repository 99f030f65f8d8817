#include "compute/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compute/elementwise.h"
#include "compute/simd.h"

namespace sluice {
namespace {

constexpr int64_t kBlock = 8;  // positions at a time

int64_t round_up(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// scores[i] = query . staged key i, for eight keys: lane by lane along the head, then summed as sums_of_8 does.
void score_block(const float* query, const float* keys, int64_t padded, float* scores) {
  F32x8 sums[kBlock];
  for (F32x8& sum : sums) sum = zero8();
  for (int64_t d = 0; d < padded; d += kLanes) {
    const F32x8 part = load8(query + d);
    for (int i = 0; i < kBlock; ++i) sums[i] = fma8(part, load8(keys + i * padded + d), sums[i]);
  }
  store8(scores, sums_of_8(sums));
}

// total += sum over i of share[i] * staged value i, in the order of i; Wide vectors of `total` from d on.
template <int Wide>
void gather_vectors(const float* share, const float* values, int64_t padded, int64_t count, int64_t d, float* total) {
  F32x8 sums[Wide];
  for (int j = 0; j < Wide; ++j) sums[j] = load8(total + d + j * kLanes);
  for (int64_t i = 0; i < count; ++i) {
    const F32x8 weight = splat8(share[i]);
    for (int j = 0; j < Wide; ++j) sums[j] = fma8(weight, load8(values + i * padded + d + j * kLanes), sums[j]);
  }
  for (int j = 0; j < Wide; ++j) store8(total + d + j * kLanes, sums[j]);
}

void gather_block(const float* share, const float* values, int64_t padded, int64_t count, float* total) {
  int64_t d = 0;
  for (; d + 8 * kLanes <= padded; d += 8 * kLanes) gather_vectors<8>(share, values, padded, count, d, total);
  for (; d < padded; d += kLanes) gather_vectors<1>(share, values, padded, count, d, total);
}

}  // namespace

KvLayer::KvLayer(const AttentionShape& shape, int32_t n_cells, bool half) : shape_(shape), half_(half) {
  const size_t bytes = static_cast<size_t>(n_cells) * static_cast<size_t>(shape.kv_width()) * (half ? 2 : 4);
  keys_ = Memory(bytes);
  values_ = Memory(bytes);
}

void KvLayer::write(Cell cell, const float* k, const float* v) {
  const auto width = static_cast<size_t>(shape_.kv_width());
  const size_t at = static_cast<size_t>(cell.value) * width;
  if (!half_) {
    std::memcpy(keys_.as<float>() + at, k, width * sizeof(float));
    std::memcpy(values_.as<float>() + at, v, width * sizeof(float));
    return;
  }
  ggml_fp16_t* to[] = {keys_.as<ggml_fp16_t>() + at, values_.as<ggml_fp16_t>() + at};
  const float* from[] = {k, v};
  const size_t whole = width / kLanes * kLanes;
  for (int i = 0; i < 2; ++i) {
    for (size_t d = 0; d < whole; d += kLanes) store8(to[i] + d, load8(from[i] + d));
    for (size_t d = whole; d < width; ++d) to[i][d] = ggml_fp32_to_fp16(from[i][d]);
  }
}

void KvLayer::read(const Memory& from, Cell cell, int32_t kv_head, float* out) const {
  const auto head_dim = static_cast<size_t>(shape_.head_dim);
  const size_t at = static_cast<size_t>(cell.value) * static_cast<size_t>(shape_.kv_width()) +
                    static_cast<size_t>(kv_head) * head_dim;
  if (!half_) {
    std::memcpy(out, from.as<float>() + at, head_dim * sizeof(float));
    return;
  }
  const ggml_fp16_t* head = from.as<ggml_fp16_t>() + at;
  const size_t whole = head_dim / kLanes * kLanes;
  for (size_t d = 0; d < whole; d += kLanes) store8(out + d, load8(head + d));
  for (size_t d = whole; d < head_dim; ++d) out[d] = ggml_fp16_to_fp32(head[d]);
}

AttentionScratch::AttentionScratch(const AttentionShape& shape, int32_t longest_path)
    : padded_head_(round_up(shape.head_dim)), longest_(round_up(longest_path)) {
  const auto queries = static_cast<size_t>(TreeAttention::kRows * (shape.n_heads / shape.n_kv_heads));
  scores_ = Memory(queries * static_cast<size_t>(longest_) * sizeof(float));
  queries_ = Memory(queries * static_cast<size_t>(padded_head_) * sizeof(float));  // zero beyond head_dim, as is block_
  block_ = Memory(static_cast<size_t>(kBlock * padded_head_) * sizeof(float));
}

void TreeAttention::run(const KvLayer& kv, std::span<const AttentionRow> rows, Part heads,
                        AttentionScratch& scratch) const {
  const auto n_rows = static_cast<int64_t>(rows.size()), n_heads = heads.end - heads.begin;
  const int64_t head_dim = shape_.head_dim, padded = scratch.padded_head_;
  const auto kv_head = static_cast<int32_t>(heads.begin / (shape_.n_heads / shape_.n_kv_heads));
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)));
  for (int64_t i = 0; i < n_rows * n_heads; ++i) {
    const float* q = rows[static_cast<size_t>(i / n_heads)].q + (heads.begin + i % n_heads) * head_dim;
    for (int64_t d = 0; d < head_dim; ++d) scratch.query(i)[d] = q[d] * scale;
  }
  walk(kv, &KvLayer::read_key, rows, kv_head, scratch, [&](int64_t row, int64_t first, int64_t) {
    // Behind the last position stand old keys; those scores are never read.
    for (int64_t i = row * n_heads; i < (row + 1) * n_heads; ++i) {
      score_block(scratch.query(i), scratch.staged(0), padded, scratch.scores(i) + first);
    }
  });
  for (int64_t i = 0; i < n_rows * n_heads; ++i) {
    softmax({scratch.scores(i), static_cast<size_t>(rows[static_cast<size_t>(i / n_heads)].path->size())});
    std::fill(scratch.query(i), scratch.query(i) + padded, 0.0f);
  }
  walk(kv, &KvLayer::read_value, rows, kv_head, scratch, [&](int64_t row, int64_t first, int64_t count) {
    for (int64_t i = row * n_heads; i < (row + 1) * n_heads; ++i) {
      gather_block(scratch.scores(i) + first, scratch.staged(0), padded, count, scratch.query(i));
    }
  });
  for (int64_t i = 0; i < n_rows * n_heads; ++i) {
    float* out = rows[static_cast<size_t>(i / n_heads)].out + (heads.begin + i % n_heads) * head_dim;
    std::copy(scratch.query(i), scratch.query(i) + head_dim, out);
  }
}

template <class Use>
void TreeAttention::walk(const KvLayer& kv, Read read, std::span<const AttentionRow> rows, int32_t kv_head,
                         AttentionScratch& scratch, Use use) const {
  int64_t longest = 0;
  for (const AttentionRow& row : rows) longest = std::max(longest, row.path->size());
  for (int64_t first = 0; first < longest; first += kBlock) {
    scratch.cells_.clear();
    for (size_t row = 0; row < rows.size(); ++row) {
      const Path& path = *rows[row].path;
      const int64_t count = std::min(kBlock, path.size() - first);
      for (int64_t i = 0; i < count; ++i) {  // what the row before has staged is often the same
        const Cell cell = path[first + i];
        const auto at = static_cast<size_t>(i);
        if (at < scratch.cells_.size() && scratch.cells_[at] == cell) continue;
        if (at >= scratch.cells_.size()) scratch.cells_.resize(at + 1);
        scratch.cells_[at] = cell;
        (kv.*read)(cell, kv_head, scratch.staged(i));
      }
      if (count > 0) use(static_cast<int64_t>(row), first, count);
    }
  }
}

}  // namespace sluice

#include "compute/attention.h"

#include <algorithm>
#include <cmath>

#include "compute/kernels/kernels.h"

namespace sluice {
namespace {

constexpr int64_t kBlock = 8;  // positions at a time
constexpr int64_t kLanes = 8;

int64_t round_up(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

}  // namespace

KvLayer::KvLayer(const AttentionShape& shape, int32_t n_cells, bool half)
    : shape_(shape), n_cells_(n_cells), half_(half) {
  const size_t bytes = static_cast<size_t>(n_cells) * static_cast<size_t>(shape.kv_width()) * (half ? 2 : 4);
  keys_ = Memory(bytes);
  values_ = Memory(bytes);
}

void KvLayer::write(Cell cell, const float* k, const float* v) {
  for (int32_t head = 0; head < shape_.n_kv_heads; ++head) {
    write(keys_, cell, head, k + head * shape_.head_dim);
    write(values_, cell, head, v + head * shape_.head_dim);
  }
}

size_t KvLayer::place(Cell cell, int32_t kv_head) const {
  return (static_cast<size_t>(kv_head) * static_cast<size_t>(n_cells_) + static_cast<size_t>(cell.value)) *
         static_cast<size_t>(shape_.head_dim);
}

void KvLayer::write(const Memory& to, Cell cell, int32_t kv_head, const float* head) {
  const size_t at = place(cell, kv_head);
  if (half_) {
    kernels::kernels().to_halves(head, shape_.head_dim, to.as<Half>() + at);
  } else {
    std::copy(head, head + shape_.head_dim, to.as<float>() + at);
  }
}

void KvLayer::read(const Memory& from, Cell cell, int32_t kv_head, float* out) const {
  const size_t at = place(cell, kv_head);
  if (half_) {
    kernels::kernels().from_halves(from.as<Half>() + at, shape_.head_dim, out);
  } else {
    std::copy(from.as<float>() + at, from.as<float>() + at + shape_.head_dim, out);
  }
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
  const kernels::Kernels& kernels = kernels::kernels();
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
      kernels.scores(scratch.query(i), scratch.staged(0), padded, scratch.scores(i) + first);
    }
  });
  for (int64_t i = 0; i < n_rows * n_heads; ++i) {
    kernels.softmax(scratch.scores(i), rows[static_cast<size_t>(i / n_heads)].path->size());
    std::fill(scratch.query(i), scratch.query(i) + padded, 0.0f);
  }
  walk(kv, &KvLayer::read_value, rows, kv_head, scratch, [&](int64_t row, int64_t first, int64_t count) {
    for (int64_t i = row * n_heads; i < (row + 1) * n_heads; ++i) {
      kernels.gather(scratch.scores(i) + first, scratch.staged(0), padded, count, scratch.query(i));
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

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
  const auto group = static_cast<size_t>(shape.n_heads / shape.n_kv_heads);
  scores_ = Memory(group * static_cast<size_t>(longest_) * sizeof(float));
  block_ = Memory(static_cast<size_t>(kBlock * padded_head_) * sizeof(float));  // zero beyond head_dim, and stays so
  query_ = Memory(group * static_cast<size_t>(padded_head_) * sizeof(float));
}

void TreeAttention::run(const KvLayer& kv, const Path& path, const float* q, Part heads, AttentionScratch& scratch,
                        float* out) const {
  const int32_t group = shape_.n_heads / shape_.n_kv_heads;
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.head_dim)));
  for (auto head = static_cast<int32_t>(heads.begin); head < heads.end;) {
    const int32_t kv_head = head / group;
    const int32_t n = std::min(static_cast<int32_t>(heads.end), (kv_head + 1) * group) - head;  // heads that share keys
    for (int32_t h = 0; h < n; ++h) {
      float* query = scratch.query_.as<float>() + h * scratch.padded_head_;
      const float* from = q + (head + h) * shape_.head_dim;
      for (int32_t d = 0; d < shape_.head_dim; ++d) query[d] = from[d] * scale;
    }
    score(kv, path, kv_head, n, scratch);
    gather(kv, path, kv_head, n, scratch, out + head * shape_.head_dim);
    head += n;
  }
}

// scores[h][t] = query[h] . key[t], lane by lane along the head, then summed as sums_of_8 does.
void TreeAttention::score(const KvLayer& kv, const Path& path, int32_t kv_head, int32_t n,
                          AttentionScratch& scratch) const {
  const int64_t length = path.size(), padded = scratch.padded_head_;
  float* keys = scratch.block_.as<float>();
  for (int64_t first = 0; first < length; first += kBlock) {
    const int64_t count = std::min(kBlock, length - first);
    for (int64_t i = 0; i < count; ++i) kv.read_key(path[first + i], kv_head, keys + i * padded);
    for (int32_t h = 0; h < n; ++h) {
      const float* query = scratch.query_.as<float>() + h * padded;
      F32x8 sums[kBlock];
      for (F32x8& sum : sums) sum = zero8();
      for (int64_t d = 0; d < padded; d += kLanes) {
        const F32x8 part = load8(query + d);
        for (int i = 0; i < kBlock; ++i) sums[i] = fma8(part, load8(keys + i * padded + d), sums[i]);
      }
      // Beyond `count` stand old keys; those scores are never read.
      store8(scratch.scores_.as<float>() + h * scratch.longest_ + first, sums_of_8(sums));
    }
  }
}

// out[h] = sum over t of softmax(scores[h])[t] * value[t].
void TreeAttention::gather(const KvLayer& kv, const Path& path, int32_t kv_head, int32_t n, AttentionScratch& scratch,
                           float* out) const {
  const int64_t length = path.size(), padded = scratch.padded_head_;
  constexpr int kWide = 8;  // vectors of the output at a time
  for (int32_t h = 0; h < n; ++h) {
    float* scores = scratch.scores_.as<float>() + h * scratch.longest_;
    softmax({scores, static_cast<size_t>(length)});
  }
  float* values = scratch.block_.as<float>();
  float* totals = scratch.query_.as<float>();  // the queries have been used
  std::fill(totals, totals + n * padded, 0.0f);
  for (int64_t first = 0; first < length; first += kBlock) {
    const int64_t count = std::min(kBlock, length - first);
    for (int64_t i = 0; i < count; ++i) kv.read_value(path[first + i], kv_head, values + i * padded);
    for (int32_t h = 0; h < n; ++h) {
      const float* share = scratch.scores_.as<float>() + h * scratch.longest_ + first;
      for (int64_t d = 0; d < padded; d += kWide * kLanes) {
        const int64_t wide = std::min<int64_t>(kWide, (padded - d) / kLanes);
        float* total = totals + h * padded + d;
        F32x8 sums[kWide];
        if (wide == kWide) {
          for (int j = 0; j < kWide; ++j) sums[j] = load8(total + j * kLanes);
          for (int64_t i = 0; i < count; ++i) {
            const F32x8 weight = splat8(share[i]);
            for (int j = 0; j < kWide; ++j)
              sums[j] = fma8(weight, load8(values + i * padded + d + j * kLanes), sums[j]);
          }
          for (int j = 0; j < kWide; ++j) store8(total + j * kLanes, sums[j]);
        } else {
          for (int64_t j = 0; j < wide; ++j) {
            F32x8 one = load8(total + j * kLanes);
            for (int64_t i = 0; i < count; ++i) {
              one = fma8(splat8(share[i]), load8(values + i * padded + d + j * kLanes), one);
            }
            store8(total + j * kLanes, one);
          }
        }
      }
    }
  }
  for (int32_t h = 0; h < n; ++h) {
    std::copy(totals + h * padded, totals + h * padded + shape_.head_dim, out + h * shape_.head_dim);
  }
}

}  // namespace sluice

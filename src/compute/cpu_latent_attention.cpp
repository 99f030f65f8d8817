// CpuBlock's operations on a layer with latent attention.
#include "compute/cpu_block.h"

namespace sluice {

// Of the rows: what queries go through, or the queries; and the latents.
void CpuBlock::Thread::project(const LatentAttention& latent) {
  LatentRows& l = b_.latents_;
  const int64_t stride = l.first + b_.shape().head_dim, rank = b_.latent_.q_rank;
  float* const projected = l.projected.as<float>();
  project(
      {{latent.has_q_a() ? &latent.q_a : &latent.q, projected, stride}, {&latent.kv_a, projected + l.first, stride}});
  if (!latent.has_q_a()) return;
  std::vector<float>& normed = b_.normed_[static_cast<size_t>(thread_)];
  const Part mine = input_rows();
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    b_.kernels_.rms_norm(projected + i * stride, latent.q_a_norm.data(), rank, b_.norm_epsilon_, normed.data());
    input().store(latent.q_formats, i, {normed.data(), static_cast<size_t>(rank)});
  }
  input_written();
  project({{&latent.q, l.queries.as<float>(), latent.q.n_out()}});
}

// A cell keeps the latent, normed, and the part that turns. A query becomes what k_b makes of its first part, and its
// second part, turned.
void CpuBlock::Thread::turn_and_keep(const LatentAttention& latent, Layer& layer) {
  LatentRows& l = b_.latents_;
  const int64_t rank = b_.latent_.rank, key = b_.latent_.key, n_heads = b_.shape().n_heads,
                head_dim = b_.shape().head_dim;
  const int64_t stride = l.first + head_dim;
  float* const q = b_.qkv_.as<float>();
  const Rope& rope = b_.ropes_.front();
  const Part mine = rows();
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    const std::span<const float> angles{b_.angles_.front().as<float>() + i * rope.size(),
                                        static_cast<size_t>(rope.size())};
    float* const projected = l.projected.as<float>() + i * stride;
    float* const kept = projected + l.first;
    b_.kernels_.rms_norm(kept, latent.kv_a_norm.data(), rank, b_.norm_epsilon_, kept);
    rope.turn(angles, kept + rank);
    layer.kv.write(b_.rows_[static_cast<size_t>(i)].cell, kept, nullptr);
    const float* const queries = latent.has_q_a() ? l.queries.as<float>() + i * n_heads * l.query : projected;
    for (int64_t head = 0; head < n_heads; ++head) {
      const float* const query = queries + head * l.query;
      l.of_k_b[static_cast<size_t>(head)].store(latent.k_b_formats, i, {query, static_cast<size_t>(key)});
      float* const turned = q + i * b_.shape().qkv_width() + head * head_dim + rank;
      std::copy(query + key, query + l.query, turned);
      rope.turn(angles, turned);
    }
  }
  b_.team_.barrier();
  divide_heads(rank, [&](size_t head, Part outputs) {
    latent.k_b[head].multiply(l.of_k_b[head], {0, b_.n_rows_}, outputs,
                              {q + static_cast<int64_t>(head) * head_dim, b_.shape().qkv_width()});
  });
}

// Of the means of latents that attention has left.
void CpuBlock::Thread::make_values(const LatentAttention& latent) {
  LatentRows& l = b_.latents_;
  const int64_t rank = b_.latent_.rank, value = b_.latent_.value, n_heads = b_.shape().n_heads;
  const Part mine = rows();
  for (int64_t i = mine.begin; i < mine.end; ++i)
    for (int64_t head = 0; head < n_heads; ++head)
      l.of_v_b[static_cast<size_t>(head)].store(
          latent.v_b_formats, i,
          {b_.attended_.as<float>() + i * b_.shape().attended_width() + head * rank, static_cast<size_t>(rank)});
  b_.team_.barrier();
  divide_heads(value, [&](size_t head, Part outputs) {
    latent.v_b[head].multiply(l.of_v_b[head], {0, b_.n_rows_}, outputs,
                              {l.values.as<float>() + static_cast<int64_t>(head) * value, n_heads * value});
  });
}

}  // namespace sluice

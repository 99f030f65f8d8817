#include "compute/cpu_block.h"

#include <cmath>

namespace sluice {

namespace {

using Activate = void (*)(float* gate, const float* up, int64_t n);

Activate activation(const kernels::Kernels& kernels, Activation which) {
  switch (which) {
    case Activation::kSilu:
      return kernels.silu_times;
    case Activation::kClampedSilu:
      return kernels.clamped_silu_times;
    case Activation::kGelu:
      return kernels.gelu_times;
  }
  SLUICE_CHECK(false, "an activation");
}

// Layers with a window are another kind if they have other heads or turn otherwise.
std::vector<AttentionShape> shapes(const HyperParameters& h, bool has_factors) {
  const AttentionShape all{h.n_heads, h.n_kv_heads, h.head_dim, h.attention_scale, h.attention_cap, h.latent.rank};
  const bool has_own_heads = h.window_head_dim > 0;
  if (h.window == 0 || (!has_own_heads && !has_factors && h.window_rope == h.rope)) return {all};
  AttentionShape windowed = all;
  if (h.window_kv_heads > 0) windowed.n_kv_heads = h.window_kv_heads;
  if (has_own_heads) windowed.head_dim = h.window_head_dim;
  return {all, windowed};
}

std::vector<Rope> ropes(const HyperParameters& h, std::span<const float> factors, size_t n_kinds) {
  std::vector<Rope> ropes = {Rope(h.rope, factors)};
  if (n_kinds > 1) ropes.emplace_back(h.window_rope, std::span<const float>());
  return ropes;
}

}  // namespace

CpuBlock::CpuBlock(const HyperParameters& h, std::span<const float> rope_factors, int32_t n_cells, int32_t max_rows,
                   int32_t threads)
    : d_model_(h.d_model),
      d_ff_(h.d_ff),
      d_per_layer_(h.d_per_layer),
      mixture_(h.mixture),
      latent_(h.latent),
      delta_(h.delta),
      gated_attention_(h.gated_attention),
      activate_(activation(kernels_, h.activation)),
      norm_epsilon_(h.norm_epsilon),
      shapes_(shapes(h, !rope_factors.empty())),
      ropes_(ropes(h, rope_factors, shapes_.size())),
      team_(threads),
      angles_(ropes_.size()),
      normed_(static_cast<size_t>(threads),
              std::vector<float>(static_cast<size_t>(std::max(h.d_model, h.latent.q_rank)))) {
  latents_.query = latent_.key + h.rope.n_dims;
  latents_.first = latent_.q_rank > 0 ? latent_.q_rank : h.n_heads * latents_.query;
  for (int thread = 0; thread < threads; ++thread) scratch_.emplace_back(shapes_, n_cells);
  reserve_for_delta_nets();
  make_room(max_rows);
}

void CpuBlock::make_room(int64_t rows) {
  const auto floats = [&](int64_t width) { return Memory(static_cast<size_t>(rows * width) * sizeof(float)); };
  qkv_ = floats(widest(&AttentionShape::qkv_width));
  attended_ = floats(std::max(widest(&AttentionShape::attended_width), delta_.value_width()));
  if (gated_attention_) gated_queries_ = floats(2 * widest(&AttentionShape::q_width));
  if (per_layer_width_ > 0) per_layer_ = floats(per_layer_width_);
  if (deltas_.stride > 0) {
    deltas_.projected = floats(deltas_.stride);
    deltas_.convolved = floats(delta_.mixed_width());
    deltas_.copies.resize(static_cast<size_t>(team_.size()));
  }
  const int64_t places = mixture_ ? ExpertGroups::most_places(rows * n_choices_of_row(), mixture_.n_experts + 1) : 0;
  gate_ = Memory(static_cast<size_t>(std::max(rows * std::max(d_ff_, d_per_layer_), places * expert_width())) *
                 sizeof(float));
  up_ = Memory(gate_.size());
  if (mixture_) {
    experts_.logits = floats(mixture_.n_experts + 1);
    experts_.choices.resize(static_cast<size_t>(rows * n_choices_of_row()));
    experts_.groups.resize(static_cast<size_t>(team_.size()));
    experts_.room.assign(experts_.groups.size(), std::vector<float>(static_cast<size_t>(mixture_.n_experts)));
    experts_.out = Memory(static_cast<size_t>(places * d_model_) * sizeof(float));
    for (LinearInput* input : {&experts_.in, &experts_.of_down, &experts_.of_shared_down}) *input = LinearInput(places);
  }
  if (latent_) {
    const int64_t heads = shape().n_heads;
    latents_.projected = floats(latents_.first + shape().head_dim);
    if (latent_.q_rank > 0) latents_.queries = floats(heads * latents_.query);
    latents_.values = floats(heads * latent_.value);
    latents_.of_k_b.clear();
    latents_.of_v_b.clear();
    for (int64_t head = 0; head < heads; ++head) {
      latents_.of_k_b.emplace_back(rows);
      latents_.of_v_b.emplace_back(rows);
    }
  }
  for (size_t kind = 0; kind < angles_.size(); ++kind) angles_[kind] = floats(ropes_[kind].size());
  if (has_post_norms_) product_ = floats(d_model_);
  max_rows_ = rows;
  inputs_.clear();
  for (int thread = 0; thread < team_.size(); ++thread)
    inputs_.emplace_back(thread == 0 ? std::max(rows, kOwnInputRows) : kOwnInputRows);
  for (const auto& [formats, n_in] : reserved_)
    for (LinearInput& input : inputs_) input.reserve(formats, n_in);
  reserve_for_experts();
  reserve_for_latents();
}

void CpuBlock::reserve_for_latents() {
  for (LinearInput& input : latents_.of_k_b) input.reserve(latents_.k_b_formats, latent_.key);
  for (LinearInput& input : latents_.of_v_b) input.reserve(latents_.v_b_formats, latent_.rank);
}

void CpuBlock::reserve(FormatSet formats, int64_t n_in) {
  reserved_.emplace_back(formats, n_in);
  for (LinearInput& input : inputs_) input.reserve(formats, n_in);
}

void CpuBlock::reserve(const Layer& layer) {
  if (!layer.ffn_post_norm.empty() && !std::exchange(has_post_norms_, true)) make_room(max_rows_);
  if (layer.latent) {
    reserve(layer.qkv_formats, d_model_);
    if (layer.latent->has_q_a()) reserve(layer.latent->q_formats, latent_.q_rank);
    latents_.k_b_formats.add(layer.latent->k_b_formats);
    latents_.v_b_formats.add(layer.latent->v_b_formats);
    reserve_for_latents();
  } else {
    reserve(layer.qkv_formats, layer.delta ? d_model_ : layer.q.n_in());
  }
  reserve(layer.attention_out_formats, layer.attention_out.n_in());
  reserve(layer.ffn_formats, d_model_);
  if (layer.per_layer) {
    reserve(layer.per_layer->gate_formats, d_model_);
    reserve(layer.per_layer->out_formats, layer.per_layer->out.n_in());
  }
  if (layer.ffn.down.n_in() > 0) reserve(layer.down_formats, layer.ffn.down.n_in());
  if (!layer.mixture) return;
  if (layer.mixture->beside_dense) {
    reserve(layer.mixture->beside_dense->router_formats, d_model_);
    reserve(layer.mixture->formats, d_model_);
  }
  experts_.in_formats.add(layer.mixture->formats);
  experts_.down_formats.add(layer.down_formats);
  reserve_for_experts();
}

void CpuBlock::reserve(const PerLayerEmbedding& embedding) {
  per_layer_width_ = embedding.stage_width();
  make_room(max_rows_);
  reserve(embedding.formats, d_model_);
}

void CpuBlock::begin(std::span<const BlockRow> rows, const FoldedStates* states) {
  if (std::ssize(rows) > max_rows_) make_room(std::max<int64_t>(std::ssize(rows), 2 * max_rows_));
  n_rows_ = std::ssize(rows);
  rows_ = rows;
  states_ = states;
  find_tiles();
}

void CpuBlock::begin(int64_t n_rows) {
  SLUICE_CHECK(n_rows <= max_rows_, "no more rows than there is room for");
  n_rows_ = n_rows;
  rows_ = {};
}

// Neighbours of one sequence, or of several that have at least half of their paths in common.
void CpuBlock::find_tiles() {
  tiles_.clear();
  for (int64_t row = 0; row < n_rows_; ++row) {
    const Path& path = rows_[static_cast<size_t>(row)].path;
    if (!tiles_.empty() && row - tiles_.back().rows.begin < TreeAttention::kRows) {
      Tile& tile = tiles_.back();
      const Path& first = rows_[static_cast<size_t>(tile.rows.begin)].path;
      const int64_t shared = in_common(first, path);
      if (path.committed.data() == first.committed.data() || 2 * shared >= std::max(first.size(), path.size())) {
        tile = {{tile.rows.begin, row + 1}, std::min(tile.shared, shared)};
        continue;
      }
    }
    tiles_.push_back({{row, row + 1}, std::ssize(path.committed)});
  }
}

// A divided operation is over for all.
void CpuBlock::Thread::done() {
  b_.team_.barrier();
  if (thread_ == 0) b_.pieces_[(n_done_ + kRing / 2) % kRing].restart();
  ++n_done_;
}

void CpuBlock::Thread::find_angles() {
  const Part mine = rows();
  for (size_t kind = 0; kind < b_.ropes_.size(); ++kind) {
    const auto size = static_cast<size_t>(b_.ropes_[kind].size());
    for (auto i = static_cast<size_t>(mine.begin); i < static_cast<size_t>(mine.end); ++i)
      b_.ropes_[kind].angles(b_.rows_[i].position, {b_.angles_[kind].as<float>() + i * size, size});
  }
}

void CpuBlock::Thread::normalise(const float* x, const std::vector<float>& weight, FormatSet formats) {
  std::vector<float>& normed = b_.normed_[static_cast<size_t>(thread_)];
  const Part mine = input_rows();
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    b_.kernels_.rms_norm(x + i * b_.d_model_, weight.data(), b_.d_model_, b_.norm_epsilon_, normed.data());
    input().store(formats, i, normed);
  }
  input_written();
}

void CpuBlock::Thread::take(const float* x, int64_t width, FormatSet formats) {
  const Part mine = input_rows();
  for (int64_t i = mine.begin; i < mine.end; ++i)
    input().store(formats, i, {x + i * width, static_cast<size_t>(width)});
  input_written();
}

void CpuBlock::Thread::project(const Layer& layer) {
  if (layer.latent) return project(*layer.latent);
  if (layer.delta) return project(*layer.delta);
  const AttentionShape& shape = b_.shape_of(layer);
  float* q = b_.qkv_.as<float>();
  float* k = q + shape.q_width();
  const int64_t stride = shape.qkv_width();
  const Product queries = b_.gated_attention_
                              ? Product{&layer.q, b_.gated_queries_.as<float>(), 2 * int64_t{shape.q_width()}}
                              : Product{&layer.q, q, stride};
  project({queries, {&layer.k, k, stride}, {&layer.v, k + shape.kv_width(), stride}});
}

void CpuBlock::Thread::project_keys_and_values(const Layer& layer) {
  const AttentionShape& shape = b_.shape_of(layer);
  float* k = b_.qkv_.as<float>() + shape.q_width();
  const int64_t stride = shape.qkv_width();
  project({{&layer.k, k, stride}, {&layer.v, k + shape.kv_width(), stride}});
}

// As if the outputs lay one after another, each product's from a multiple of the grain on.
void CpuBlock::Thread::project(std::initializer_list<Product> products) {
  const auto room_of = [](const Linear& linear) {
    return (linear.n_out() + Linear::kGrain - 1) / Linear::kGrain * Linear::kGrain;
  };
  int64_t room = 0;
  for (const Product& one : products) room += room_of(*one.weight);
  divide_outputs(room, [&](Part outputs) {
    for (const auto& [weight, y, stride] : products) {
      const Part own{std::max<int64_t>(outputs.begin, 0), std::min(outputs.end, weight->n_out())};
      weight->multiply(input(), {0, b_.n_rows_}, own, {y, stride});
      outputs = {outputs.begin - room_of(*weight), outputs.end - room_of(*weight)};
    }
  });
  done();
}

void CpuBlock::Thread::turn(const Layer& layer, int64_t row, float* heads, int32_t n,
                            const std::vector<float>& norm) const {
  const size_t kind = b_.kind(layer.window > 0);
  const Rope& rope = b_.ropes_[kind];
  const int32_t size = rope.size(), width = b_.shapes_[kind].head_dim;
  const std::span<const float> angles{b_.angles_[kind].as<float>() + row * size, static_cast<size_t>(size)};
  for (float* head = heads; head < heads + n * width; head += width) {
    if (!norm.empty()) b_.kernels_.rms_norm(head, norm.data(), width, b_.norm_epsilon_, head);
    rope.turn(angles, head);
  }
}

void CpuBlock::Thread::turn_and_keep(Layer& layer) {
  if (layer.latent) return turn_and_keep(*layer.latent, layer);
  if (layer.delta) return convolve(*layer.delta);
  const AttentionShape& shape = b_.shape_of(layer);
  const Part mine = rows();
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    if (b_.gated_attention_) take_queries_out(i);
    turn(layer, i, b_.qkv_.as<float>() + i * shape.qkv_width(), shape.n_heads, layer.q_norm);
  }
  if (layer.shared_kv != nullptr) return b_.team_.barrier();
  turn_and_keep_keys(layer);
}

// Of a row whose queries came with gates.
void CpuBlock::Thread::take_queries_out(int64_t row) {
  const AttentionShape& shape = b_.shape();
  const int64_t width = shape.head_dim;
  const float* from = b_.gated_queries_.as<float>() + row * 2 * shape.q_width();
  float* to = b_.qkv_.as<float>() + row * shape.qkv_width();
  for (int64_t head = 0; head < shape.n_heads; ++head, from += 2 * width, to += width)
    std::copy(from, from + width, to);
}

void CpuBlock::Thread::turn_and_keep_keys(Layer& layer) {
  const AttentionShape& shape = b_.shape_of(layer);
  const Part mine = rows();
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    float* const k = b_.qkv_.as<float>() + i * shape.qkv_width() + shape.q_width();
    float* const v = k + shape.kv_width();
    if (layer.v.n_out() == 0) std::copy(k, v, v);
    if (!layer.v_norm.empty())
      for (float* head = v; head < v + shape.kv_width(); head += shape.head_dim)
        b_.kernels_.rms_norm(head, layer.v_norm.data(), shape.head_dim, b_.norm_epsilon_, head);
    turn(layer, i, k, shape.n_kv_heads, layer.k_norm);
    layer.kv.write(b_.rows_[static_cast<size_t>(i)].cell, k, v);
  }
  b_.team_.barrier();
}

// Several rows: tiles of neighbours, which share most of their paths, by kv head, or a part of its heads. One row: its
// heads are divided.
void CpuBlock::Thread::attend(const Layer& layer) {
  if (layer.delta) return fold(*layer.delta);
  const AttentionShape& shape = b_.shape_of(layer);
  const TreeAttention attention(shape);
  const KvLayer& kv = layer.shared_kv != nullptr ? *layer.shared_kv : layer.kv;
  const int64_t n_heads = shape.n_heads, group = n_heads / shape.n_kv_heads;
  const int64_t together = shape.heads_together();
  // As if the groups lay one after another, each from a multiple of that on.
  const int64_t parts_of_group = (group + together - 1) / together, n_parts = parts_of_group * shape.n_kv_heads;
  AttentionRow tile[TreeAttention::kRows];
  const auto run = [&](const Tile& which, Part heads) {
    const auto [first, end] = which.rows;
    for (int64_t i = first; i < end; ++i) {
      tile[i - first] = {&b_.rows_[static_cast<size_t>(i)].path, b_.qkv_.as<float>() + i * shape.qkv_width(),
                         b_.attended_.as<float>() + i * shape.attended_width()};
    }
    attention.run(kv, {tile, static_cast<size_t>(end - first)}, {which.shared, layer.window, layer.sinks}, heads,
                  b_.scratch_[static_cast<size_t>(thread_)]);
    if (b_.gated_attention_) gate_attended(which.rows, heads);
  };
  if (b_.n_rows_ == 1) {
    const Part mine = part_of(n_heads, 1, thread_, b_.team_.size());
    for (int64_t head = mine.begin; head < mine.end;) {
      const int64_t end = std::min({mine.end, (head / group + 1) * group, head + together});
      run(b_.tiles_.front(), {head, end});
      head = end;
    }
  } else {
    divide(std::ssize(b_.tiles_) * n_parts, 1, [&](Part units) {
      for (int64_t unit = units.begin; unit < units.end; ++unit) {
        const int64_t part = unit % n_parts, end = (part / parts_of_group + 1) * group;
        const int64_t first = part / parts_of_group * group + part % parts_of_group * together;
        run(b_.tiles_[static_cast<size_t>(unit / n_parts)], {first, std::min(first + together, end)});
      }
    });
  }
  done();
}

void CpuBlock::Thread::gate_attended(Part rows, Part heads) {
  const AttentionShape& shape = b_.shape();
  const int64_t width = shape.head_dim;
  for (int64_t row = rows.begin; row < rows.end; ++row)
    for (int64_t head = heads.begin; head < heads.end; ++head)
      b_.kernels_.sigmoid_times(b_.gated_queries_.as<float>() + row * 2 * shape.q_width() + (2 * head + 1) * width,
                                b_.attended_.as<float>() + row * shape.attended_width() + head * width, width);
}

void CpuBlock::Thread::add_attended(const Layer& layer, float* x) {
  if (layer.latent) make_values(*layer.latent);
  const Memory& attended = layer.latent ? b_.latents_.values : b_.attended_;
  take(attended.as<float>(), layer.attention_out.n_in(), layer.attention_out_formats);
  add_product(layer.attention_out, layer.attention_post_norm, x);
}

void CpuBlock::Thread::gate(const Layer& layer) {
  const int64_t d_ff = layer.ffn.gate.n_out();
  divide_outputs(d_ff, [&](Part outputs) { gate(layer.ffn, input(), {0, b_.n_rows_}, outputs, d_ff); });
  done();
}

// gate = activation(gate) * up, each thread on the outputs that it computed itself.
void CpuBlock::Thread::gate(const FeedForward& network, const LinearInput& x, Part rows, Part outputs, int64_t width) {
  float* const gate = b_.gate_.as<float>();
  float* const up = b_.up_.as<float>();
  network.gate.multiply(x, rows, outputs, {gate, width});
  network.up.multiply(x, rows, outputs, {up, width});
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const int64_t at = i * width + outputs.begin;
    b_.activate_(gate + at, up + at, outputs.end - outputs.begin);
  }
}

void CpuBlock::Thread::add_gated(const Layer& layer, float* x) {
  take(b_.gate_.as<float>(), layer.ffn.down.n_in(), layer.down_formats);
  add_product(layer.ffn.down, layer.ffn_post_norm, x);
}

void CpuBlock::Thread::find_layer_inputs(const PerLayerEmbedding& embedding, std::span<const Row> batch,
                                         const float* states) {
  const int64_t width = embedding.width, stage = embedding.stage_width(), d = b_.d_model_;
  float* const inputs = b_.per_layer_.as<float>();
  own_rows_written();
  take(states, d, embedding.formats);
  project({{&embedding.projection, inputs, stage}});
  const float of_projection = 1.0f / std::sqrt(static_cast<float>(d));
  const float of_both = 1.0f / std::sqrt(2.0f);
  std::vector<float> tables(static_cast<size_t>(stage));
  const Part mine = rows();
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    embed_for_layers(embedding.table, batch[static_cast<size_t>(i)].token, embedding.first, embedding.width, tables);
    for (int64_t at = 0; at < stage; at += width) {
      float* const p = inputs + i * stage + at;
      const float* const t = tables.data() + at;
      for (int64_t j = 0; j < width; ++j) p[j] *= of_projection;
      b_.kernels_.rms_norm(p, embedding.norm.data(), width, b_.norm_epsilon_, p);
      for (int64_t j = 0; j < width; ++j) p[j] = (p[j] + t[j]) * of_both;
    }
  }
}

void CpuBlock::Thread::finish(const Layer& layer, float* x) {
  if (layer.per_layer) {
    const PerLayerInput& per_layer = *layer.per_layer;
    const int64_t width = per_layer.gate.n_out();
    float* const gate = b_.gate_.as<float>();
    const float* const inputs = b_.per_layer_.as<float>() + per_layer.at;
    take(x, b_.d_model_, per_layer.gate_formats);
    divide_outputs(width, [&](Part outputs) {
      per_layer.gate.multiply(input(), {0, b_.n_rows_}, outputs, {gate, width});
      for (int64_t i = 0; i < b_.n_rows_; ++i)
        b_.activate_(gate + i * width + outputs.begin, inputs + i * b_.per_layer_width_ + outputs.begin,
                     outputs.end - outputs.begin);
    });
    done();
    take(gate, width, per_layer.out_formats);
    add_product(per_layer.out, per_layer.post_norm, x);
  }
  if (layer.output_scale == 1.0f) return;
  const Part mine = rows();
  for (float* value = x + mine.begin * b_.d_model_; value < x + mine.end * b_.d_model_; ++value)
    *value *= layer.output_scale;
  own_rows_written();
}

// x += input W^T, or what a norm makes of that.
void CpuBlock::Thread::add_product(const Linear& weight, const std::vector<float>& norm, float* x) {
  const int64_t d = b_.d_model_;
  float* const y = norm.empty() ? x : b_.product_.as<float>();
  divide_outputs(d, [&](Part outputs) {
    weight.multiply(input(), {0, b_.n_rows_}, outputs, {y, d, /*add=*/norm.empty()});
  });
  done();
  if (norm.empty()) return;
  const Part mine = rows();
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    b_.kernels_.rms_norm(y + i * d, norm.data(), d, b_.norm_epsilon_, y + i * d);
    for (int64_t j = 0; j < d; ++j) x[i * d + j] += y[i * d + j];
  }
  own_rows_written();
}

void CpuBlock::Thread::product(const Linear& weight, float* y, float cap) {
  const int64_t n_out = weight.n_out();
  divide_outputs(n_out, [&](Part outputs) {
    weight.multiply(input(), {0, b_.n_rows_}, outputs, {y, n_out});
    if (cap == 0.0f) return;
    for (int64_t i = 0; i < b_.n_rows_; ++i)
      b_.kernels_.soft_cap(y + i * n_out + outputs.begin, outputs.end - outputs.begin, cap);
  });
}

}  // namespace sluice

#include "source/heads/head_layers.h"

#include <algorithm>

namespace sluice {

HeadLayers::HeadLayers(const HeadFile& file, HeadWeights weights, int32_t n_cells, int32_t threads)
    : parameters_(file.parameters()),
      weights_(std::move(weights)),
      d_(static_cast<size_t>(parameters_.hparams.d_model)),
      shape_{parameters_.hparams.n_heads, parameters_.hparams.n_kv_heads, parameters_.hparams.head_dim},
      rope_(parameters_.hparams.rope, {}),
      attention_(shape_),
      team_(threads),
      scratch_(shape_, n_cells),
      angles_(static_cast<size_t>(rope_.size())) {}

Result<std::unique_ptr<HeadLayers>> HeadLayers::create(const HeadFile& file, int32_t n_cells, int32_t threads) {
  SLUICE_TRY(auto weights, file.map());
  std::unique_ptr<HeadLayers> head(new HeadLayers(file, std::move(weights), n_cells, threads));
  SLUICE_TRY_STATUS(head->prepare(n_cells));
  return head;
}

Status HeadLayers::prepare(int32_t n_cells) {
  const StageWeights& pages = weights_.mappings.front();
  const Packer pack{pages, packed_, team_};
  const auto readable = [&](const Linear& linear) {
    FormatSet formats;
    formats.add(linear.format());
    input_.reserve(formats, linear.n_in());
  };
  for (const LayerWeights& w : weights_.layers) {
    SLUICE_TRY(Layer layer, make_layer(pack, w, KvLayer(shape_, n_cells, /*half=*/false)));
    for (const Linear* linear :
         {&layer.q, &layer.k, &layer.v, &layer.attention_out, &layer.gate, &layer.up, &layer.down})
      readable(*linear);
    layers_.push_back(std::move(layer));
  }
  const std::byte* before = nullptr;
  for (const Tensor& tensor : weights_.fc) {
    if (tensor && tensor.data == before) {  // one for several depths
      fc_.push_back(fc_.back());
      continue;
    }
    before = tensor.data;
    Linear linear;
    if (tensor) {
      SLUICE_TRY(linear, pack(tensor, {}));
      readable(linear);
    }
    fc_.push_back(std::move(linear));
  }
  SLUICE_TRY(output_, pack(weights_.output, {}));
  readable(*output_);
  output_norm_ = to_f32_vector(weights_.output_norm);
  return {};
}

void HeadLayers::products(std::initializer_list<Product> wanted, const float* x, size_t n, bool add) {
  FormatSet formats;
  for (const Product& one : wanted) formats.add(one.weight->format());
  const auto n_in = static_cast<size_t>(wanted.begin()->weight->n_in());
  for (size_t first = 0; first < n; first += kRows) {
    const size_t rows = std::min(n - first, kRows);
    for (size_t i = 0; i < rows; ++i) input_.store(formats, static_cast<int64_t>(i), {x + (first + i) * n_in, n_in});
    team_.run([&](int thread) {
      for (const auto& [weight, y] : wanted) {
        const int64_t n_out = weight->n_out();
        weight->multiply(input_, static_cast<int64_t>(rows), part_of(n_out, Linear::kGrain, thread, team_.size()),
                         {y + first * static_cast<size_t>(n_out), n_out, add});
      }
    });
  }
}

void HeadLayers::normalise(const float* x, size_t n, size_t width, std::span<const float> weight, float* y) const {
  const std::vector<float> ones(weight.empty() ? width : 0, 1.0f);
  for (size_t i = 0; i < n; ++i)
    kernels_.rms_norm(x + i * width, weight.empty() ? ones.data() : weight.data(), static_cast<int64_t>(width),
                      parameters_.hparams.norm_epsilon, y + i * width);
}

void HeadLayers::turn(std::span<const HeadRow> rows, int32_t n_heads, float* values) {
  for (const HeadRow& row : rows) {
    rope_.angles(row.position, angles_);
    for (int32_t head = 0; head < n_heads; ++head, values += shape_.head_dim) rope_.turn(angles_, values);
  }
}

void HeadLayers::keep(size_t layer, std::span<const HeadRow> rows, const float* inputs) {
  Layer& l = layers_[layer];
  const auto width = static_cast<size_t>(shape_.kv_width());
  k_.resize(rows.size() * width);
  v_.resize(rows.size() * width);
  products({{&l.k, k_.data()}, {&l.v, v_.data()}}, inputs, rows.size());
  turn(rows, shape_.n_kv_heads, k_.data());
  for (size_t i = 0; i < rows.size(); ++i) l.kv.write(rows[i].cell, &k_[i * width], &v_[i * width]);
}

void HeadLayers::advance(size_t layer, std::span<const HeadRow> rows, const float* inputs, float* x) {
  const Layer& l = layers_[layer];
  const size_t n = rows.size(), width = static_cast<size_t>(shape_.n_heads * shape_.head_dim);
  q_.resize(n * width);
  attended_.resize(n * width);
  product(l.q, inputs, n, q_.data());
  turn(rows, shape_.n_heads, q_.data());
  const int64_t group = shape_.n_heads / shape_.n_kv_heads;
  AttentionRow tile[TreeAttention::kRows];
  for (size_t first = 0; first < n; first += TreeAttention::kRows) {
    const size_t count = std::min(n - first, static_cast<size_t>(TreeAttention::kRows));
    for (size_t i = 0; i < count; ++i)
      tile[i] = {&rows[first + i].path, &q_[(first + i) * width], &attended_[(first + i) * width]};
    for (int64_t kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head)
      attention_.run(l.kv, {tile, count}, {kv_head * group, (kv_head + 1) * group}, scratch_);
  }
  product(l.attention_out, attended_.data(), n, x, /*add=*/true);

  const auto d_ff = static_cast<size_t>(l.gate.n_out());
  normed_.resize(n * d_);
  gate_.resize(n * d_ff);
  up_.resize(n * d_ff);
  normalise(x, n, d_, l.ffn_norm, normed_.data());
  products({{&l.gate, gate_.data()}, {&l.up, up_.data()}}, normed_.data(), n);
  kernels_.silu_times(gate_.data(), up_.data(), static_cast<int64_t>(n * d_ff));
  product(l.down, gate_.data(), n, x, /*add=*/true);
}

void HeadLayers::logits(std::span<const float> hidden, std::span<float> logits) {
  const size_t n = hidden.size() / d_;
  normed_.resize(n * d_);
  normalise(hidden.data(), n, d_, output_norm_, normed_.data());
  product(*output_, normed_.data(), n, logits.data());
}

}  // namespace sluice

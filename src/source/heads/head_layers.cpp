#include "source/heads/head_layers.h"

#include <algorithm>

#include "compute/block.h"

namespace sluice {

HeadLayers::HeadLayers(const HeadFile& file, HeadWeights weights, int32_t n_cells, int32_t threads)
    : parameters_(file.parameters()),
      weights_(std::move(weights)),
      d_(static_cast<size_t>(parameters_.hparams.d_model)),
      block_(parameters_.hparams, {}, n_cells, kRows, threads) {}

Result<std::unique_ptr<HeadLayers>> HeadLayers::create(const HeadFile& file, int32_t n_cells, int32_t threads) {
  SLUICE_TRY(auto weights, file.map());
  std::unique_ptr<HeadLayers> head(new HeadLayers(file, std::move(weights), n_cells, threads));
  SLUICE_TRY_STATUS(head->prepare(n_cells));
  return head;
}

Status HeadLayers::prepare(int32_t n_cells) {
  const StageWeights& pages = weights_.mappings.front();
  const Packer pack{pages, packed_, block_.team()};
  const auto readable = [&](const Linear& linear) { block_.reserve(formats_of({&linear}), linear.n_in()); };
  for (const LayerWeights& w : weights_.layers) {
    SLUICE_TRY(Layer layer,
               make_layer(pack, w, KvLayer(block_.shape(), n_cells, KvType::kF32), parameters_.hparams.mixture));
    block_.reserve(layer);
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

void HeadLayers::product(const Linear& weight, const float* x, size_t n, float* y) {
  const int64_t n_in = weight.n_in(), n_out = weight.n_out(), all = static_cast<int64_t>(n);
  for (int64_t first = 0; first < all; first += kRows) {
    block_.begin(std::min<int64_t>(all - first, kRows));
    block_.run([&](CpuBlock::Thread& thread) {
      thread.take(x + first * n_in, n_in, formats_of({&weight}));
      thread.product(weight, y + first * n_out);
    });
  }
}

void HeadLayers::normalise(const float* x, size_t n, size_t width, std::span<const float> weight, float* y) const {
  const std::vector<float> ones(weight.empty() ? width : 0, 1.0f);
  for (size_t i = 0; i < n; ++i)
    kernels_.rms_norm(x + i * width, weight.empty() ? ones.data() : weight.data(), static_cast<int64_t>(width),
                      parameters_.hparams.norm_epsilon, y + i * width);
}

void HeadLayers::keep(size_t layer, std::span<const BlockRow> rows, const float* inputs) {
  if (rows.empty()) return;
  Layer& l = layers_[layer];
  block_.begin(rows);
  block_.run([&](CpuBlock::Thread& thread) {
    thread.find_angles();
    thread.take(inputs, l.k.n_in(), l.qkv_formats);
    keep_keys_and_values(thread, l);
  });
}

void HeadLayers::compute(size_t layer, std::span<const BlockRow> rows, const float* inputs, float* x) {
  if (rows.empty()) return;
  Layer& l = layers_[layer];
  block_.begin(rows);
  block_.run([&](CpuBlock::Thread& thread) {
    thread.find_angles();
    thread.take(inputs, l.latent ? l.latent->kv_a.n_in() : l.q.n_in(), l.qkv_formats);
    block_after_norm(thread, l, x);
  });
}

void HeadLayers::logits(std::span<const float> hidden, std::span<float> logits) {
  const size_t n = hidden.size() / d_;
  normed_.resize(n * d_);
  normalise(hidden.data(), n, d_, output_norm_, normed_.data());
  product(*output_, normed_.data(), n, logits.data());
}

}  // namespace sluice

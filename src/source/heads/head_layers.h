// Decoder layers over rows whose inputs a head chooses: what all kinds of heads compute with.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compute/cpu_block.h"
#include "model/head_file.h"

namespace sluice {

// Keys and values are f32. Thread safety: none. Matrices are [rows, width], rows one after another.
class HeadLayers {
 public:
  // Cells 0 … n_cells - 1 may be used. Errors name a weight of a type that has no product.
  static Result<std::unique_ptr<HeadLayers>> create(const HeadFile& file, int32_t n_cells, int32_t threads);

  const HeadParameters& parameters() const { return parameters_; }
  const HeadWeights& weights() const { return weights_; }
  const std::vector<Linear>& fc() const { return fc_; }
  size_t n_layers() const { return layers_.size(); }
  size_t d_model() const { return d_; }

  // y = x W^T. x: [n, n_in], y: [n, n_out].
  void product(const Linear& weight, const float* x, size_t n, float* y);
  // Each row of x over its root mean square, times `weight` if there is one. x, y: [n, width]; may be the same.
  void normalise(const float* x, size_t n, size_t width, std::span<const float> weight, float* y) const;
  void normalise_for(size_t layer, const float* x, size_t n, float* y) const {
    normalise(x, n, d_, layers_[layer].attention_norm, y);
  }
  void normalise_for_output(const float* x, size_t n, float* y) const { normalise(x, n, d_, output_norm_, y); }
  void embed(Token token, float* out) const { copy_row_f32(weights_.token_embedding, token, {out, d_}); }

  // Keys and values of the rows. inputs: what queries, keys and values are projected from, normed.
  void keep(size_t layer, std::span<const BlockRow> rows, const float* inputs);
  // The same, and the layer's work on x: [n, d_model], the rows' states. REQUIRES: what the rows see besides one
  // another has been kept.
  void compute(size_t layer, std::span<const BlockRow> rows, const float* inputs, float* x);

  // hidden: [n, d_model], before the norm; logits: [n, n_guessable].
  void logits(std::span<const float> hidden, std::span<float> logits);

 private:
  HeadLayers(const HeadFile& file, HeadWeights weights, int32_t n_cells, int32_t threads);
  Status prepare(int32_t n_cells);
  // So many rows share a pass over a matrix; more take their memory when they come.
  static constexpr int32_t kRows = 64;

  const kernels::Kernels& kernels_ = kernels::kernels();
  HeadParameters parameters_;
  HeadWeights weights_;
  Arena packed_;
  size_t d_;
  CpuBlock block_;
  std::vector<Layer> layers_;
  std::vector<Linear> fc_;
  std::optional<Linear> output_;
  std::vector<float> output_norm_;
  std::vector<float> normed_;
};

}  // namespace sluice

// Per-layer embeddings (Gemma 3n and 4): what a token gives each layer l besides the state that it begins with,
//   p_l = (sqrt(n) t_l + norm(W_l e / sqrt(d))) / sqrt(2)      [n]
// where e is the state that it begins with, and t_l the token's row in a table of layer l. At its end the layer does
//   x += norm((gelu(x W_gate^T) * p_l) W_out^T)
#pragma once

#include <cstdint>
#include <vector>

#include "compute/linear.h"

namespace sluice {

// Of the layers of a stage.
struct PerLayerEmbedding {
  Tensor table;             // [n_vocab, all layers * n], the file's
  int32_t first = 0;        // the stage's first layer
  int32_t width = 0;        // n
  Linear projection;        // W: [the stage's layers * n, d_model]
  std::vector<float> norm;  // [n]
  FormatSet formats;        // of the projection's input

  int64_t stage_width() const { return projection.n_out(); }
};

// In a layer.
struct PerLayerInput {
  int64_t at = 0;                // where p_l begins among those of the stage
  Linear gate, out;              // [n, d_model], [d_model, n]
  std::vector<float> post_norm;  // [d_model]
  FormatSet gate_formats, out_formats;
};

}  // namespace sluice

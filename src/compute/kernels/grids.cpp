#include "compute/kernels/grids.h"

namespace sluice::kernels {

// By ggml's reading of the block. With a factor of 1 its products are exact, and so are these quotients.
void read_grid_codes(ggml_type type, const void* block, const float (&worth)[kGridInputs / 16],
                     int8_t (&codes)[kGridInputs]) {
  float values[kGridInputs];
  ggml_get_type_traits(type)->to_float(block, values, kGridInputs);
  for (int k = 0; k < kGridInputs; ++k) codes[k] = static_cast<int8_t>(values[k] / worth[k / 16]);
}

}  // namespace sluice::kernels

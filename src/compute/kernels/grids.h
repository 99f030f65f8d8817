// The tables of codes that IQ1, IQ2 and IQ3 weights are made of. They are ggml's alone.
#pragma once

#include <ggml.h>

#include <cstdint>

namespace sluice::kernels {

inline constexpr int kGridInputs = 256;  // of a block

// The codes of a file's block whose factor is 1. worth: what a code of 1 is worth there, of 16 inputs each.
void read_grid_codes(ggml_type type, const void* block, const float (&worth)[kGridInputs / 16],
                     int8_t (&codes)[kGridInputs]);

}  // namespace sluice::kernels

// The tables of codes that IQ1, IQ2 and IQ3 weights are made of. They are ggml's alone.
#pragma once

#include <cstdint>

#include "compute/kernels/table.h"

namespace sluice::kernels {

// The values that the indices of a form stand for, one index after another: [2^bits of an index][values together].
const int8_t* grid_of(WeightForm form);

}  // namespace sluice::kernels

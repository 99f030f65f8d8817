// Matrix products, compiled for each instruction set: see Product in table.h for the value of an output.
#pragma once

#include "compute/kernels/table.h"

namespace sluice::kernels::SLUICE_ISA {

// Fills kernels.multiply.
void set_products(Kernels& kernels);

// See Kernels.
void quantise(const float* x, int64_t n, std::byte* out);

}  // namespace sluice::kernels::SLUICE_ISA

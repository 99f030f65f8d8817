// What a table of kernels is filled with, compiled for each instruction set.
#pragma once

#include "compute/kernels/table.h"

namespace sluice::kernels::SLUICE_ISA {

// Matrix products: fills kernels.multiply. See Product in table.h for the value of an output.
void set_products(Kernels& kernels);

// Norms, activations and attention's inner loops: fills the others.
void set_elementwise(Kernels& kernels);

// See Kernels.
void quantise(const float* x, int64_t n, std::byte* out);

}  // namespace sluice::kernels::SLUICE_ISA

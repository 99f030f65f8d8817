// Norms, activations and attention's inner loops, compiled for each instruction set: see Kernels.
#pragma once

#include "compute/kernels/table.h"

namespace sluice::kernels::SLUICE_ISA {

// Fills all but the products.
void set_elementwise(Kernels& kernels);

}  // namespace sluice::kernels::SLUICE_ISA

// Compiled once for each instruction set: its kernels.
#include "compute/kernels/parts.h"

#define SLUICE_TEXT(x) #x
#define SLUICE_NAME(x) SLUICE_TEXT(x)

namespace sluice::kernels::SLUICE_ISA {

Kernels table() {
  Kernels kernels{};
  kernels.name = SLUICE_NAME(SLUICE_ISA);
  kernels.quantise = quantise;
  set_products(kernels);
  set_elementwise(kernels);
  return kernels;
}

}  // namespace sluice::kernels::SLUICE_ISA

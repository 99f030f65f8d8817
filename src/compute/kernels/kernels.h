// The inner loops of a layer, each for every instruction set and with the same bits on all of them.
#pragma once

#include <span>

#include "compute/kernels/table.h"

namespace sluice::kernels {

// Those of this processor's best instruction set, unless others were chosen.
const Kernels& kernels();

// All that this processor can run, the best last.
std::span<const Kernels* const> runnable_kernels();

// From now on kernels() are these. No other thread may be computing.
void use_kernels(const Kernels& kernels);

// The same for those of the instruction set that the environment variable SLUICE_ISA names, if there is one. False if
// this processor cannot run it.
bool use_kernels_of_environment();

}  // namespace sluice::kernels

// The inner loops of a layer, each for every instruction set and with the same bits on all of them.
#pragma once

#include <span>
#include <string_view>

#include "compute/kernels/table.h"

namespace sluice::kernels {

// Those of this processor's best instruction set, unless others were chosen.
const Kernels& kernels();

// All that this processor can run, the best last.
std::span<const Kernels* const> runnable_kernels();

// From now on kernels() are these. No other thread may be computing.
void use_kernels(const Kernels& kernels);

}  // namespace sluice::kernels

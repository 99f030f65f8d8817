// AMX, tile registers and products of matrices of bytes: whether they can be used here.
#pragma once

#include "compute/kernels/table.h"

namespace sluice::kernels {

// Whether the processor has tiles of bytes, and Linux lets this process use them: it is asked for the permission, which
// then holds for all threads.
bool may_use_tiles();

// Whether some products that these kernels compute by tiles are those of `plain`, to the last bit.
bool tiles_are_right(const Kernels& kernels, const Kernels& plain);

}  // namespace sluice::kernels

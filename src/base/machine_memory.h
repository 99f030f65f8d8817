// How much memory a process may have here.
#pragma once

#include <cstdint>

namespace sluice {

// Bytes of memory of this machine, or of the container (control group) that the process is in, if that allows less.
int64_t machine_memory();

}  // namespace sluice

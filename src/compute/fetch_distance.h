// How far ahead of what it multiplies a thread fetches weights. How long memory takes to answer, and so which distance
// is best, differs from machine to machine; the outputs don't depend on it.
#pragma once

#include <cstdint>
#include <span>

#include "compute/linear.h"
#include "compute/thread_team.h"

namespace sluice {

// Bytes. A guess until it was measured.
int64_t fetch_distance();

// Measures it, in the first call of a process whose matrices are together larger than caches: some 30 ms.
void measure_fetch_distance(std::span<const Linear* const> matrices, ThreadTeam& team);

}  // namespace sluice

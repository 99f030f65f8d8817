// Counts what a test program asks of the system: whoever includes this has `new` replaced.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::test {

int64_t allocations();     // by all threads so far
size_t allocated_bytes();  // likewise, what was given back included
int64_t live_bytes();      // what was not given back, as malloc rounds it

}  // namespace sluice::test

// Counts what a test program asks of the system: whoever includes this has `new` replaced.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::test {

int64_t allocations();     // by all threads so far
size_t allocated_bytes();  // likewise, what was given back included

}  // namespace sluice::test

#include "support/counted_memory.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> n_allocations = 0;
std::atomic<size_t> n_bytes = 0;
}  // namespace

[[gnu::noinline]] void* operator new(size_t n) {
  ++n_allocations;
  n_bytes += n;
  if (void* memory = std::malloc(n > 0 ? n : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace sluice::test {

int64_t allocations() { return n_allocations; }
size_t allocated_bytes() { return n_bytes; }

}  // namespace sluice::test

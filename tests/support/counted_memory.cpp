#include "support/counted_memory.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> n_allocations = 0;
std::atomic<size_t> n_bytes = 0;
std::atomic<int64_t> n_live = 0;
}  // namespace

[[gnu::noinline]] void* operator new(size_t n, const std::nothrow_t&) noexcept {
  ++n_allocations;
  n_bytes += n;
  void* const memory = std::malloc(n > 0 ? n : 1);
  if (memory != nullptr) n_live += static_cast<int64_t>(malloc_usable_size(memory));
  return memory;
}
[[gnu::noinline]] void* operator new(size_t n) {
  void* const memory = operator new(n, std::nothrow);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  n_live -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace sluice::test {

int64_t allocations() { return n_allocations; }
size_t allocated_bytes() { return n_bytes; }
int64_t live_bytes() { return n_live; }

}  // namespace sluice::test

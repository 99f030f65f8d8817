#include "compute/memory.h"

#include <sys/mman.h>

#include <new>

namespace sluice {

Memory::Memory(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(p);
}

Memory::~Memory() {
  if (data_) munmap(data_, bytes_);
}

}  // namespace sluice

#include "compute/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <new>

namespace sluice {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

std::byte* map(size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(p);
}

// Starts where a huge page may start.
std::byte* map_huge(size_t bytes) {
  std::byte* all = map(bytes + kHugePage);
  const size_t before = (kHugePage - reinterpret_cast<uintptr_t>(all) % kHugePage) % kHugePage;
  if (before > 0) munmap(all, before);
  munmap(all + before + bytes, kHugePage - before);
  madvise(all + before, bytes, MADV_HUGEPAGE);  // advice: without it, or refused, it is only slower
  return all + before;
}

}  // namespace

Memory::Memory(size_t bytes, Pages pages) : bytes_(bytes) {
  if (bytes == 0) return;
  if (pages == Pages::kOrdinary) {
    data_ = map(bytes);
  } else {
    bytes_ = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    data_ = map_huge(bytes_);
  }
}

void Memory::forget(size_t begin, size_t bytes) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t end = begin + bytes, first = (begin + page - 1) / page * page, last = end / page * page;
  // Memory that is locked can't be given back.
  if (first >= last || madvise(data_ + first, last - first, MADV_DONTNEED) != 0) {
    std::fill_n(data_ + begin, bytes, std::byte{});
    return;
  }
  std::fill(data_ + begin, data_ + first, std::byte{});
  std::fill(data_ + last, data_ + end, std::byte{});
}

Memory::~Memory() {
  if (data_) munmap(data_, bytes_);
}

std::byte* Arena::take(size_t bytes) {
  constexpr size_t kLine = 64, kChunk = 32 * kHugePage;
  bytes = (bytes + kLine - 1) / kLine * kLine;
  if (chunks_.empty() || chunks_.back().size() - used_ < bytes) {
    chunks_.emplace_back(std::max(bytes, kChunk), Memory::Pages::kHuge);
    used_ = 0;
  }
  std::byte* block = chunks_.back().data() + used_;
  used_ += bytes;
  return block;
}

}  // namespace sluice

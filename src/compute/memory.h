// Large blocks of memory: zero at first, aligned to a page; pages that are never touched cost nothing.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace sluice {

class Memory {
 public:
  enum class Pages { kOrdinary, kHuge };  // huge: where the system has them to give

  Memory() = default;
  explicit Memory(size_t bytes, Pages pages = Pages::kOrdinary);
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Memory();

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  // So many bytes from `begin` on are zero again; of them whole pages cost nothing any more.
  void forget(size_t begin, size_t bytes);
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void swap(Memory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Many blocks that live equally long, side by side in huge pages: a pass over them misses fewer translations.
class Arena {
 public:
  // Zero, aligned to a cache line; valid as long as this.
  std::byte* take(size_t bytes);

 private:
  std::vector<Memory> chunks_;
  size_t used_ = 0;  // of the last chunk
};

}  // namespace sluice

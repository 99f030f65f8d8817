// Large blocks of memory: zero at first, aligned to a page; pages that are never touched cost nothing.
#pragma once

#include <cstddef>
#include <utility>

namespace sluice {

class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t bytes);
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Memory();

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
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

}  // namespace sluice

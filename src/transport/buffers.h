// Memory of frames that have been, for frames to come: in the steady state nobody asks the system for any.
#pragma once

#include <boost/circular_buffer.hpp>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace sluice {

using Bytes = std::vector<std::byte>;

// Thread safety: any thread.
class Buffers {
 public:
  Buffers() { free_.reserve(kKept); }

  // An empty one.
  Bytes take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return {};
    Bytes bytes = std::move(free_.back());
    free_.pop_back();
    return bytes;
  }
  // Large ones, of a prompt say, are not kept.
  void give_back(Bytes&& bytes) {
    Bytes given = std::move(bytes);
    given.clear();
    if (given.capacity() == 0 || given.capacity() > kLargest) return;
    const std::lock_guard lock(mutex_);
    if (free_.size() < kKept) free_.push_back(std::move(given));
  }

 private:
  static constexpr size_t kKept = 8, kLargest = size_t{256} << 10;

  std::mutex mutex_;
  std::vector<Bytes> free_;
};

// First in, first out; it grows and does not shrink.
template <class T>
class Fifo {
 public:
  bool empty() const { return ring_.empty(); }
  size_t size() const { return ring_.size(); }
  T& front() { return ring_.front(); }
  const T& front() const { return ring_.front(); }
  void push_back(T value) {
    if (ring_.full()) ring_.set_capacity(2 * ring_.capacity());
    ring_.push_back(std::move(value));
  }
  void pop_front() { ring_.pop_front(); }
  void clear() { ring_.clear(); }

 private:
  boost::circular_buffer<T> ring_{16};
};

}  // namespace sluice

// Threads that their owner lends for a piece of work.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>

namespace sluice {

class Spread {
 public:
  // One of the parts that a work has been cut into. A thread does one at a time.
  using Part = std::function<void(size_t part, size_t thread)>;
  // Calls part(i, thread) once for every i < n, thread < threads(), several of them at once, and returns when all are
  // done.
  using Each = std::function<void(size_t n, const Part& part)>;

  Spread() = default;  // the caller's own thread
  Spread(size_t threads, Each each) : threads_(threads), each_(std::move(each)) {}

  size_t threads() const { return threads_; }
  void each(size_t n, const Part& part) const {
    if (each_) return each_(n, part);
    for (size_t i = 0; i < n; ++i) part(i, 0);
  }

 private:
  size_t threads_ = 1;
  Each each_;
};

}  // namespace sluice

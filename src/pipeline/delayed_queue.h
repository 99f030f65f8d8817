// A queue between threads whose messages take their time.
#pragma once

#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "wire/report.h"

namespace sluice {

using DelayClock = std::chrono::steady_clock;

inline DelayClock::duration delay_of(double seconds) {
  constexpr double kLongest = 1e8;  // three years; far more would overflow the clock
  return std::chrono::duration_cast<DelayClock::duration>(std::chrono::duration<double>(std::min(seconds, kLongest)));
}

// When a pass is over that a profile gives so many seconds. Computing that takes longer counts, but for what was not
// stored though it should have been; that the system wakes a thread too late is no part of the pass.
inline DelayClock::time_point end_of_pass(DelayClock::time_point begin, DelayClock::time_point computed, double seconds,
                                          const Lookups& lookups) {
  const auto paced = begin + delay_of(seconds);
  return lookups.missed > 0 ? paced : std::max(computed, paced);
}

// Waits of this thread end when they should: Linux likes to gather those of all, up to 50 us later.
inline void wait_exactly() { ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

// A queue whose messages arrive some time after they were sent; they come out in the order of arrival.
template <class T>
class DelayedQueue {
 public:
  void push(T value, DelayClock::time_point arrival) {
    {
      const std::lock_guard lock(mutex_);
      const auto after =
          std::upper_bound(queue_.begin(), queue_.end(), arrival,
                           [](DelayClock::time_point t, const Timed& other) { return t < other.arrival; });
      queue_.insert(after, {arrival, std::move(value)});
    }
    changed_.notify_one();
  }

  // Waits for the next message; nothing when the queue was closed.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (closed_) return std::nullopt;
      if (queue_.empty()) {
        changed_.wait(lock);
      } else if (const auto arrival = queue_.front().arrival; arrival > DelayClock::now()) {
        changed_.wait_until(lock, arrival);
      } else {
        return take();
      }
    }
  }

  std::optional<T> try_pop() {
    const std::lock_guard lock(mutex_);
    if (queue_.empty() || queue_.front().arrival > DelayClock::now()) return std::nullopt;
    return take();
  }

  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }

 private:
  struct Timed {
    DelayClock::time_point arrival;
    T value;
  };
  T take() {
    T value = std::move(queue_.front().value);
    queue_.pop_front();
    return value;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Timed> queue_;
  bool closed_ = false;
};

}  // namespace sluice

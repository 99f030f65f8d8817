// A fixed team of threads that works through one region after another.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace sluice {

// Thread safety: one thread at a time may call run(); it takes part as thread 0. A team of one costs nothing.
// Waiting threads spin for some microseconds, then offer their core to others, then sleep: several teams may share
// cores.
class ThreadTeam {
 public:
  // Throws std::system_error when the system refuses a thread.
  explicit ThreadTeam(int n_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return n_threads_; }

  // Calls work(thread) on every thread, thread = 0 … size() - 1, and returns when all are done. What one region has
  // written the next one sees. `work` must not throw: what does ends the program, since its team would wait for it.
  template <class Work>
  void run(Work&& work) {
    if (n_threads_ == 1) return static_cast<void>(work(0));
    using Body = std::remove_reference_t<Work>;
    run_all([](void* body, int thread) noexcept { (*static_cast<Body*>(body))(thread); }, &work);
  }

  // Inside a region: no thread passes before all have come.
  void barrier() {
    if (n_threads_ > 1) wait_for_all();
  }

 private:
  using Call = void (*)(void*, int) noexcept;
  void run_all(Call call, void* body);
  void wait_for_all();
  void serve(int thread);
  void stop();

  const int n_threads_;
  Call call_ = nullptr;  // written before region_ changes
  void* body_ = nullptr;
  bool stopping_ = false;
  alignas(64) std::atomic<uint32_t> region_{0};
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> passed_{0};  // barriers passed
  std::vector<std::jthread> threads_;
};

// The part of [0, n) that a thread takes, in multiples of `grain` (but for the end).
struct Part {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};
inline Part part_of(int64_t n, int64_t grain, int thread, int n_threads) {
  const int64_t grains = (n + grain - 1) / grain;
  const auto at = [&](int t) {
    const int64_t edge = grains * t / n_threads * grain;
    return edge < n ? edge : n;
  };
  return {at(thread), at(thread + 1)};
}

// Work of a region that its threads take piece by piece: one that is held up, or whose core is slower, leaves more to
// the others.
class Pieces {
 public:
  // REQUIRES: a barrier, or the beginning of the region, lies between this and every take().
  void restart() { next_.store(0, std::memory_order_relaxed); }

  // The next of about `pieces` pieces of [0, n), in multiples of `grain` (but for the end); empty when nothing is left.
  Part take(int64_t n, int64_t grain, int64_t pieces) {
    const int64_t size = std::max<int64_t>(1, ((n + grain - 1) / grain + pieces / 2) / pieces) * grain;
    const int64_t begin = next_.fetch_add(size, std::memory_order_relaxed);
    return {begin, begin + size < n ? begin + size : n};
  }

 private:
  alignas(64) std::atomic<int64_t> next_{0};
};

}  // namespace sluice

#include "compute/thread_team.h"

#include <chrono>

#include "base/result.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace sluice {
namespace {

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Returns once `value` is no longer `old`.
void wait_while(const std::atomic<uint32_t>& value, uint32_t old) {
  constexpr int kSpins = 100;  // 2 to 4 us
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax();
  }
  constexpr auto kPatience = std::chrono::microseconds(60);  // about what a sleep and a wake-up cost
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  do {
    if (value.load(std::memory_order_acquire) != old) return;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < deadline);
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadTeam::ThreadTeam(int n_threads) : n_threads_(n_threads) {
  SLUICE_CHECK(n_threads >= 1, "a team has at least one thread");
  try {
    for (int thread = 1; thread < n_threads; ++thread) threads_.emplace_back([this, thread] { serve(thread); });
  } catch (...) {  // the system gives no more: those that there are must not be waited for in vain
    stop();
    throw;
  }
}

ThreadTeam::~ThreadTeam() { stop(); }

void ThreadTeam::stop() {
  stopping_ = true;
  region_.fetch_add(1, std::memory_order_release);
  region_.notify_all();
}

void ThreadTeam::run_all(Call call, void* body) {
  call_ = call;
  body_ = body;
  region_.fetch_add(1, std::memory_order_release);
  region_.notify_all();
  call(body, 0);
  wait_for_all();
}

void ThreadTeam::serve(int thread) {
  for (uint32_t seen = 0;; ++seen) {
    wait_while(region_, seen);
    if (stopping_) return;
    call_(body_, thread);
    wait_for_all();
  }
}

void ThreadTeam::wait_for_all() {
  const uint32_t passed = passed_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == n_threads_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    passed_.fetch_add(1, std::memory_order_release);
    passed_.notify_all();
  } else {
    wait_while(passed_, passed);
  }
}

}  // namespace sluice

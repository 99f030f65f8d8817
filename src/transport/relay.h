// An edge between two stages that can't reach each other, by way of this process, which both can be reached from.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "transport/frame_queue.h"

namespace sluice {

// Frames that come by one connection go on by the other, by a thread of its own, whole and in their order. What waits
// is bounded: it counts as held by the connection that it came by until the other one has taken it, so a stage that is
// slower than the one before lets that one wait, as over an edge of their own. Thread safety: any thread.
class Relay {
 public:
  // from: is listened to by its owner, who calls push(). to: likewise; what it can't take any more is dropped.
  Relay(std::shared_ptr<Connection> from, std::shared_ptr<Connection> to);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  ~Relay();

  void push(Frame frame) { frames_.push(std::move(frame)); }
  // The stage behind it has said that it is through with the next batch, on which it spent so many seconds, its time in
  // front of the stage included.
  void heard(double seconds);
  // Ends both connections.
  void close();

  uint64_t batches() const { return batches_; }
  uint64_t bytes() const { return bytes_; }
  // That frames lay here, and half of what passed between sending each and hearing of it, beside what heard() was told.
  double seconds();

 private:
  using Clock = std::chrono::steady_clock;
  void forward();

  const std::shared_ptr<Connection> from_, to_;
  FrameQueue frames_;
  std::atomic<uint64_t> batches_ = 0, bytes_ = 0;
  std::mutex mutex_;  // guards the next two
  double seconds_ = 0;
  std::deque<Clock::time_point> sent_;  // of which nothing has been heard
  std::thread thread_;                  // the last to begin
};

}  // namespace sluice

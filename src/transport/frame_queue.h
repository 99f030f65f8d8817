// Frames for a thread that takes them one after the other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "transport/connection.h"

namespace sluice {

// Frames on their way from the network's thread to another. Thread safety: any thread.
class FrameQueue {
 public:
  void push(Frame frame);
  std::optional<Frame> pop();      // waits; nothing once it is closed
  std::optional<Frame> try_pop();  // without waiting
  void close();
  void wait_until(std::chrono::steady_clock::time_point time);  // or until it is closed

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Fifo<Frame> frames_;
  bool closed_ = false;
};

}  // namespace sluice

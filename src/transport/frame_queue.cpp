#include "transport/frame_queue.h"

#include <utility>

namespace sluice {

void FrameQueue::push(Frame frame) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    frames_.push_back(std::move(frame));
  }
  changed_.notify_one();
}

std::optional<Frame> FrameQueue::pop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || !frames_.empty(); });
  if (closed_) return std::nullopt;
  Frame frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

std::optional<Frame> FrameQueue::try_pop() {
  const std::lock_guard lock(mutex_);
  if (closed_ || frames_.empty()) return std::nullopt;
  Frame frame = std::move(frames_.front());
  frames_.pop_front();
  return frame;
}

void FrameQueue::wait_until(std::chrono::steady_clock::time_point time) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, time, [&] { return closed_; });
}

void FrameQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    frames_.clear();
  }
  changed_.notify_all();
}

}  // namespace sluice

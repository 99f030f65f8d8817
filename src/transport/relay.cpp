#include "transport/relay.h"

#include <algorithm>
#include <utility>

namespace sluice {

Relay::Relay(std::shared_ptr<Connection> from, std::shared_ptr<Connection> to)
    : from_(std::move(from)), to_(std::move(to)), thread_([this] { forward(); }) {}

Relay::~Relay() {
  close();
  thread_.join();
}

void Relay::close() {
  frames_.close();
  from_->close();
  to_->close();
}

// A send that fails is no news: the owner hears how the connection ended.
void Relay::forward() {
  while (const auto frame = frames_.pop()) {
    Bytes bytes = to_->buffer();
    bytes.assign(frame->bytes().begin(), frame->bytes().end());
    const auto begin = Clock::now();
    {
      const std::lock_guard lock(mutex_);
      seconds_ += std::chrono::duration<double>(begin - frame->came()).count();
      sent_.push_back(begin);
    }
    ++batches_;
    bytes_ += bytes.size();
    if (!to_->send(std::move(bytes), Priority::kBulk)) return frames_.close();
  }
}

void Relay::heard(double seconds) {
  const std::lock_guard lock(mutex_);
  if (sent_.empty()) return;
  const double all = std::chrono::duration<double>(Clock::now() - sent_.front()).count();
  sent_.pop_front();
  seconds_ += std::max(0.0, all - seconds) / 2;
}

double Relay::seconds() {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

}  // namespace sluice

#include "serve/frame_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "serve/policy.h"

namespace sluice {

namespace {

using Length = uint32_t;  // before a frame, in this machine's order of bytes

bool write_exactly(int socket, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace

FrameChannel::FrameChannel(int socket) : socket_(socket), writer_([this] { write_all(); }) {}

FrameChannel::~FrameChannel() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  given_.notify_one();
  writer_.join();
  ::close(socket_);
}

void FrameChannel::send(std::span<const std::byte> frame) {
  const auto length = static_cast<Length>(frame.size());
  const auto head = std::as_bytes(std::span(&length, 1));
  const std::lock_guard lock(mutex_);
  const bool idle = outbox_.empty();
  outbox_.insert(outbox_.end(), head.begin(), head.end());
  outbox_.insert(outbox_.end(), frame.begin(), frame.end());
  if (idle) given_.notify_one();
}

void FrameChannel::write_all() {
  bool open = true;
  for (std::vector<std::byte> going;; going.clear()) {
    {
      std::unique_lock lock(mutex_);
      given_.wait(lock, [this] { return ending_ || !outbox_.empty(); });
      if (outbox_.empty()) return;
      std::swap(going, outbox_);
    }
    open = open && write_exactly(socket_, going);
  }
}

std::optional<std::vector<std::byte>> FrameChannel::receive() {
  Length length = 0;
  if (!read_exactly(std::as_writable_bytes(std::span(&length, 1))) || length > policy::kLongestFrame)
    return std::nullopt;
  std::vector<std::byte> frame(length);
  if (!read_exactly(frame)) return std::nullopt;
  return frame;
}

bool FrameChannel::read_exactly(std::span<std::byte> bytes) {
  for (;;) {
    const size_t n = std::min(bytes.size(), inbox_.size() - taken_);
    std::copy_n(inbox_.begin() + static_cast<ptrdiff_t>(taken_), n, bytes.begin());
    taken_ += n;
    bytes = bytes.subspan(n);
    if (bytes.empty()) return true;
    inbox_.resize(policy::kReadAtOnce);
    taken_ = 0;
    ssize_t got = 0;
    do got = ::recv(socket_, inbox_.data(), inbox_.size(), 0);
    while (got < 0 && errno == EINTR);
    inbox_.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got <= 0) return false;
  }
}

void FrameChannel::shut() { ::shutdown(socket_, SHUT_RDWR); }

}  // namespace sluice

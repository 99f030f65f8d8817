// Frames between two processes of one machine, over a stream socket.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace sluice {

class FrameChannel {
 public:
  explicit FrameChannel(int socket);  // which it owns from now on
  FrameChannel(const FrameChannel&) = delete;
  FrameChannel& operator=(const FrameChannel&) = delete;
  // Sends what was given to it, if the other side still takes it.
  ~FrameChannel();

  // Of any thread; it doesn't wait. What is given meanwhile goes out at once. Dropped if the other side has gone.
  void send(std::span<const std::byte> frame);
  // The next one, when it has come; none: the other side has gone, or shut() was called. Of one thread.
  std::optional<std::vector<std::byte>> receive();
  // Of any thread: what waits in receive() returns.
  void shut();

 private:
  void write_all();
  bool read_exactly(std::span<std::byte> bytes);

  const int socket_;
  std::mutex mutex_;
  std::condition_variable given_;
  std::vector<std::byte> outbox_;
  bool ending_ = false;
  std::vector<std::byte> inbox_;  // of who receives: read and not taken yet
  size_t taken_ = 0;              // of it
  std::thread writer_;
};

}  // namespace sluice

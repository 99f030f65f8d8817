// Frames to and from another process.
//
// Neither side makes the other hold more than is agreed: a frame that came counts as held until it is gone
// (class Frame), and while too much is held nothing is read, so that the peer's sends wait in turn. Both sides send
// heartbeats, from the network's thread, with a number that says how far their work has got; a peer that is silent, or
// stops in the middle of a frame, for longer than the patience is given up.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"
#include "transport/chunks.h"
#include "wire/codec.h"

namespace sluice {

// How the name of a peer begins that was connected to, unless it is a rank.
inline constexpr const char* kHost = "host ";

struct ConnectionOptions {
  double patience = 5.0;  // seconds without a sign of life
  double connect = 5.0;   // seconds for a connection to be made
  size_t most_waiting =
      size_t{8} << 20;  // bytes, beyond the frame in hand: held here, and of each priority on the way out
  size_t most_frame = kMostMessageBytes;                            // bytes
  std::function<uint64_t()> progress = [] { return uint64_t{0}; };  // any thread may ask
};

// How much has come and is still held, and memory for what comes. Any thread.
class Inflow {
 public:
  explicit Inflow(size_t most) : most_(most) {}
  void add(size_t n);
  void remove(size_t n);
  // Whether it is too much; then `resume` is called once it no longer is.
  bool is_full(const std::function<std::function<void()>()>& resume);
  Buffers& buffers() { return buffers_; }

 private:
  const size_t most_;
  std::mutex mutex_;
  size_t held_ = 0;
  std::function<void()> resume_;
  Buffers buffers_;
};

// One that came. Counts as held as long as it lives.
class Frame {
 public:
  Frame(Bytes bytes, std::shared_ptr<Inflow> inflow) : bytes_(std::move(bytes)), inflow_(std::move(inflow)) {
    inflow_->add(bytes_.size());
  }
  Frame(Frame&&) noexcept = default;
  Frame& operator=(Frame&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(inflow_, other.inflow_);
    came_ = other.came_;
    return *this;
  }
  ~Frame() {
    if (!inflow_) return;
    inflow_->remove(bytes_.size());
    inflow_->buffers().give_back(std::move(bytes_));
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::chrono::steady_clock::time_point came() const { return came_; }

 private:
  Bytes bytes_;
  std::shared_ptr<Inflow> inflow_;  // null: moved from
  std::chrono::steady_clock::time_point came_ = std::chrono::steady_clock::now();
};

// Thread safety: any thread.
class Connection {
 public:
  // Called on the network's thread, which they must not hold up.
  struct Ears {
    std::function<void(Frame)> frame;
    std::function<void(const Error&)> end;  // once, when the peer ended it or failed (kRuntime, naming the peer)
  };
  virtual ~Connection() = default;

  // What comes from now on, and what has come before. To be called once.
  virtual void listen(Ears ears) = 0;
  // Waits while too much of this priority is on its way; not for the peer to get it. REQUIRES: not on the network's
  // thread. Errors (kRuntime) name the peer: the connection has ended.
  virtual Status send(Bytes frame, Priority priority) = 0;
  Status send(const Message& message, Priority priority) {
    Bytes bytes = buffer();
    encode(message, bytes);
    return send(std::move(bytes), priority);
  }
  virtual Bytes buffer() { return {}; }  // for a frame to be sent
  // Ends it, whatever is still on its way; ears hear no more, but for what they are just hearing.
  virtual void close() = 0;
  // Ends it when the peer has been told why (WorkerFailed), or has no ear for it.
  virtual void close_because(const Error& error) = 0;

  // Errors of this connection begin with it.
  virtual const std::string& peer() const = 0;  // for people: "host b:7001", "rank 3 (node7)"
  virtual uint64_t peer_progress() const = 0;   // what its last heartbeat said
};

// What a peer has said is wrong, with its name unless it is of another host that it names itself.
Error said_by(const std::string& peer, const Error& error);

}  // namespace sluice

// A Connection over a socket: handshake, hello, frames.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "transport/byte_stream.h"
#include "transport/connection.h"
#include "wire/hello.h"

namespace sluice {

// How a connection begins. One of the two is called, once, on the network's thread.
struct Greeting {
  // The peer has said hello; an error is told to it, and ends the connection.
  std::function<Status(const Hello&)> met;
  std::function<void(const Error&)> failed;
};

// Private members: on the network's thread, but for what the mutex guards.
class SocketConnection final : public Connection, public std::enable_shared_from_this<SocketConnection> {
 public:
  SocketConnection(std::unique_ptr<ByteStream> stream, Side side, std::string peer, ConnectionOptions options);

  // Shakes hands and says hello; a server answers with the hello that it was told. On the network's thread.
  void start(const Hello& hello, Greeting greeting);
  // What must live as long as this.
  void keep(std::shared_ptr<void> kept) { kept_ = std::move(kept); }

  void listen(Ears ears) override;
  Status send(Bytes frame, Priority priority) override;
  Bytes buffer() override;
  void close() override;
  void close_because(const Error& error) override;
  const std::string& peer() const override { return peer_; }
  uint64_t peer_progress() const override { return peer_progress_; }

 private:
  enum class State : uint8_t { kShaking, kGreeting, kOpen, kClosing, kEnded };

  template <class Do>
  void post(Do&& act);
  void queue(Bytes frame, Priority priority);
  bool write_at_once();
  void let_network_write();
  void write();
  void wrote();
  void read();
  void take(size_t n);
  void take_frame(Bytes frame);
  void greet(const Bytes& frame);
  void meet(const Hello& hello);
  void give_up(const Error& error);
  void leave(const Error& error);
  void tick();
  bool overdue();
  void end(const Error& error);
  void end(const std::string& what) { end(Error{ErrorKind::kRuntime, peer_ + ": " + what}); }
  std::string handshake_failure(const boost::system::error_code& error) const;

  std::shared_ptr<void> kept_;  // the last to go
  const std::unique_ptr<ByteStream> stream_;
  const Side side_;
  const std::string peer_;
  const ConnectionOptions options_;
  const int64_t most_ticks_;        // that patience lasts
  const int64_t most_first_ticks_;  // until it is open
  boost::asio::steady_timer timer_;

  State state_ = State::kShaking;
  Hello hello_;
  Greeting greeting_;
  Ears ears_;
  std::deque<Frame> early_;    // that came before anybody listened
  std::optional<Error> late_;  // how it ended, before anybody listened
  ChunkReader reader_;
  std::array<std::byte, kChunkBytes> input_;
  bool reading_ = false;
  std::shared_ptr<SocketConnection> read_for_, written_for_;  // this, while a read or a write is under way
  int64_t ticks_ = 0, silent_ticks_ = 0, stuck_ticks_ = 0;
  const std::shared_ptr<Inflow> inflow_;
  std::atomic<uint64_t> peer_progress_ = 0;

  std::mutex mutex_;  // guards what follows, but for `output_`
  std::condition_variable room_;
  ChunkWriter out_;
  bool at_once_ = false;  // who sends may write
  bool writing_ = false;  // somebody does, and to him belongs what follows
  Bytes output_;
  size_t gone_ = 0;  // bytes of it
  std::optional<Error> ended_;
};

}  // namespace sluice

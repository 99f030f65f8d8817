// Bytes to and from a peer; here over TCP as it is, or inside TLS 1.3 with a secret that both know.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "transport/secret.h"

namespace sluice {

enum class Side : uint8_t { kClient, kServer };

// What a process needs for TLS, made once. The key exchange is ephemeral (psk_dhe_ke): who learns the secret later
// cannot read what was recorded. Nobody has a certificate, so whoever lacks the secret fails the handshake.
class Tls {
 public:
  explicit Tls(const Secret& secret);
  ~Tls();
  struct Contexts;
  Contexts& contexts() { return *contexts_; }

 private:
  std::unique_ptr<Contexts> contexts_;
};

// All calls, and what they call when they are done, on the network's thread. One read and one write
// may be under way at a time; the buffers live until they are done.
class ByteStream {
 public:
  using Done = std::function<void(boost::system::error_code, size_t)>;
  virtual ~ByteStream() = default;

  // Before anything else; with TCP alone there is nothing to do.
  virtual void shake_hands(Side side, std::function<void(boost::system::error_code)> done) = 0;
  virtual void read_some(boost::asio::mutable_buffer to, Done done) = 0;
  virtual void write(boost::asio::const_buffer from, Done done) = 0;
  // Nothing is written any more; what was still comes to the peer, and then an end of file.
  virtual void shut() = 0;
  // Ends reads and writes that are under way.
  virtual void close() = 0;
  virtual boost::asio::any_io_executor executor() = 0;  // of the network's thread
  // What the peer must be, for people.
  virtual std::string wanted() const = 0;
  // How many of the bytes the system takes at once; none inside TLS. From any thread, while no write is under way and
  // nobody closes the stream.
  virtual size_t write_at_once(boost::asio::const_buffer) { return 0; }
};

// tls: null for TCP alone. It outlives the stream.
std::unique_ptr<ByteStream> make_stream(boost::asio::ip::tcp::socket socket, Tls* tls, Side side);

}  // namespace sluice

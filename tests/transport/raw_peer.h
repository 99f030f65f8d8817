// A peer that speaks TCP and nothing else, well or badly.
#pragma once

#include <memory>
#include <string>

#include "transport/chunks.h"
#include "transport/socket_network.h"

namespace sluice::test {

class RawPeer {
 public:
  // Connects to a port of this machine, within a small receive buffer.
  explicit RawPeer(uint16_t port);
  // What was accepted.
  explicit RawPeer(int fd, bool) : fd_(fd) {}
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;
  ~RawPeer();

  void send(std::span<const std::byte> bytes);
  void send(const std::string& text) { send(std::as_bytes(std::span(text))); }
  // A message as one frame.
  void send(const Message& message);
  // All that comes until the peer ends the connection, or for a minute.
  Bytes read_to_end();

 private:
  int fd_ = -1;
};

// A port of this machine where nobody answers what comes.
class RawListener {
 public:
  RawListener();
  RawListener(const RawListener&) = delete;
  RawListener& operator=(const RawListener&) = delete;
  ~RawListener();
  uint16_t port() const { return port_; }
  std::unique_ptr<RawPeer> accept();

 private:
  int fd_ = -1;
  uint16_t port_ = 0;
};

// The bytes that a frame with this message goes as.
Bytes chunks_of(const Message& message);

// A secret of its own for each number.
Secret secret(uint8_t number);

}  // namespace sluice::test

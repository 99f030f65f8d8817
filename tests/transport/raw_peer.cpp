#include "transport/raw_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <stdexcept>

#include "wire/codec.h"

namespace sluice::test {

namespace {

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

}  // namespace

RawPeer::RawPeer(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
  const auto address = loopback(port);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("nobody listens at port " + std::to_string(port));
}

RawPeer::~RawPeer() { ::close(fd_); }

void RawPeer::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;  // the peer has ended it, which is its right
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void RawPeer::send(const Message& message) { send(chunks_of(message)); }

Bytes RawPeer::read_to_end() {
  Bytes all;
  for (;;) {
    pollfd waited{fd_, POLLIN, 0};
    std::byte some[4096];
    if (::poll(&waited, 1, 60'000) <= 0) throw std::runtime_error("the peer does not end the connection");
    const ssize_t n = ::recv(fd_, some, sizeof some, 0);
    if (n <= 0) return all;
    all.insert(all.end(), some, some + n);
  }
}

RawListener::RawListener() : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
  auto address = loopback(0);
  socklen_t size = sizeof address;
  if (::bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(fd_, 4) != 0 ||
      ::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("no port can be had");
  port_ = ntohs(address.sin_port);
}

RawListener::~RawListener() { ::close(fd_); }

std::unique_ptr<RawPeer> RawListener::accept() {
  return std::make_unique<RawPeer>(::accept(fd_, nullptr, nullptr), true);
}

Bytes chunks_of(const Message& message) {
  ChunkWriter writer;
  writer.add(encode(message), Priority::kUrgent);
  Bytes all, some;
  while (writer.fill(some)) all.insert(all.end(), some.begin(), some.end());
  return all;
}

Secret secret(uint8_t number) {
  Secret secret;
  secret.bytes.fill(number);
  return secret;
}

}  // namespace sluice::test

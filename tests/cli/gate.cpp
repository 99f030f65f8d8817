#include "cli/gate.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <stdexcept>

namespace sluice::test {

namespace {

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Until there is no more: then the other side is told so, and may still answer. What it can't take is dropped.
void pump(int from, int to) {
  std::array<char, 1 << 16> bytes;
  for (ssize_t n; (n = ::read(from, bytes.data(), bytes.size())) > 0;)
    for (ssize_t gone = 0; gone < n;) {
      const ssize_t some = ::send(to, bytes.data() + gone, static_cast<size_t>(n - gone), MSG_NOSIGNAL);
      if (some <= 0) break;
      gone += some;
    }
  ::shutdown(to, SHUT_WR);
}

}  // namespace

Gate::Gate(const std::string& to, size_t closed)
    : to_(static_cast<uint16_t>(std::stoi(to.substr(to.rfind(':') + 1)))),
      closed_(closed),
      listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in at = loopback(0);
  socklen_t size = sizeof at;
  if (::bind(listening_, reinterpret_cast<sockaddr*>(&at), size) != 0 || ::listen(listening_, 16) != 0 ||
      ::getsockname(listening_, reinterpret_cast<sockaddr*>(&at), &size) != 0)
    throw std::runtime_error("no port for a gate");
  address = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  serving_ = std::thread([this] { serve(); });
}

Gate::~Gate() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  ::shutdown(listening_, SHUT_RDWR);
  serving_.join();
  for (std::thread& one : pumps_) one.join();
  for (const int fd : open_) ::close(fd);
  ::close(listening_);
}

void Gate::serve() {
  for (size_t n = 0;; ++n) {
    const int from = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (from < 0) return;
    if (n == closed_)
      ::close(from);
    else
      let_through(from);
  }
}

void Gate::let_through(int from) {
  const int to = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), at_once = 1;
  const sockaddr_in there = loopback(to_);
  const std::lock_guard lock(mutex_);
  open_.push_back(from);
  open_.push_back(to);
  for (const int fd : {from, to}) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
  if (ending_ || ::connect(to, reinterpret_cast<const sockaddr*>(&there), sizeof there) != 0) {
    ::shutdown(from, SHUT_RDWR);
    return;
  }
  pumps_.emplace_back([from, to] { pump(from, to); });
  pumps_.emplace_back([from, to] { pump(to, from); });
}

}  // namespace sluice::test

// Connections over TCP: one thread for all of their sockets.
#pragma once

#include <memory>
#include <optional>

#include "transport/network.h"
#include "transport/secret.h"

namespace sluice {

class SocketNetwork final : public Network {
 public:
  // Without a secret it speaks with this machine only (loopback), each way; with one all it says is inside TLS.
  explicit SocketNetwork(const std::optional<Secret>& secret);
  SocketNetwork(const SocketNetwork&) = delete;
  SocketNetwork& operator=(const SocketNetwork&) = delete;
  ~SocketNetwork() override;

  void stop() override;
  Result<std::shared_ptr<Connection>> connect(const HostAddress& to, const Hello& hello,
                                              const ConnectionOptions& options = {}) override;
  Result<HostAddress> listen(const HostAddress& at, Accept accept, const ConnectionOptions& options = {}) override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

// Connections of this process: one thread for all of their sockets.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "transport/address.h"
#include "transport/connection.h"
#include "transport/secret.h"
#include "wire/hello.h"

namespace sluice {

// Thread safety: any thread but the network's own.
class Network {
 public:
  // Without a secret it speaks with this machine only (loopback), each way.
  explicit Network(const std::optional<Secret>& secret);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  // Ends what is still there. Ears that are hearing something are waited for; none hears anything afterwards.
  ~Network();

  // Waits until the peer has answered the hello with the same. Errors (kRuntime, or what the peer says) name the host
  // and what would be right.
  Result<std::shared_ptr<Connection>> connect(const HostAddress& to, const Hello& hello,
                                              const ConnectionOptions& options = {});

  // Takes who comes there with the secret and a hello: `accept` is called on the network's thread; what it refuses is
  // told its error. Gives the address, with the port that was chosen if it was 0. Errors (kRuntime) name --listen.
  using Accept = std::function<Status(const Hello&, const std::shared_ptr<Connection>&)>;
  Result<HostAddress> listen(const HostAddress& at, Accept accept, const ConnectionOptions& options = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice

// Connections of this process to others, whatever carries them.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "transport/address.h"
#include "transport/connection.h"
#include "transport/secret.h"
#include "wire/hello.h"

namespace sluice {

class MpiJob;

// All of its connections are served by one thread, the network's. Thread safety: any thread but that one.
class Network {
 public:
  // Ends what is still there. Ears that are hearing something are waited for; none hears anything afterwards.
  virtual ~Network() = default;

  // Ends what is there, and lets nothing new begin: who waits in connect() gets an error.
  virtual void stop() = 0;

  // Waits until the peer has answered the hello with the same. Errors (kRuntime, or what the peer says) name the host
  // and what would be right.
  virtual Result<std::shared_ptr<Connection>> connect(const HostAddress& to, const Hello& hello,
                                                      const ConnectionOptions& options = {}) = 0;

  // Takes who comes there with a hello: `accept` is called on the network's thread; what it refuses is told its error.
  // Gives the address, with the port that was chosen if it was 0. Errors (kRuntime) name --listen.
  using Accept = std::function<Status(const Hello&, const std::shared_ptr<Connection>&)>;
  virtual Result<HostAddress> listen(const HostAddress& at, Accept accept, const ConnectionOptions& options = {}) = 0;
};

// Between the ranks of the job, if there is one; else over TCP, inside TLS if there is a secret.
std::unique_ptr<Network> make_network(const std::shared_ptr<MpiJob>& job, const std::optional<Secret>& secret);

}  // namespace sluice

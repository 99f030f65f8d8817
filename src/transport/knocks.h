// Who of the hosts that are away, or were not needed yet, is there.
#pragma once

#include <functional>
#include <list>
#include <mutex>
#include <thread>

#include "transport/address.h"
#include "transport/network.h"

namespace sluice {

// Each is asked by a thread of its own, again and again, so that nobody has to wait for one that is silent: a host that
// has stopped still takes connections, since its system does, and says nothing. Thread safety: any thread.
class Knocks {
 public:
  // network: outlives this. answered: is told once of each that at() has named, when it answers, on its thread.
  Knocks(Network& network, std::function<void(const HostAddress&)> answered);
  // Ends at once if the network has stopped, else when who is being asked has answered or has had its time.
  ~Knocks();

  // Unless this host is being asked already.
  void at(const HostAddress& host);
  // No more; what is under way ends by itself.
  void stop();

 private:
  struct Knock {
    HostAddress host;
    std::jthread thread;
    bool done = false;
  };
  void ask(const HostAddress& host, const std::stop_token& stop);

  Network& network_;
  const std::function<void(const HostAddress&)> answered_;
  std::mutex mutex_;  // guards what follows
  std::list<Knock> knocks_;
};

}  // namespace sluice

// Streams of the same events to many clients, none of whom may be waited for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "serve/http_server.h"

namespace sluice {

// A client that is too slow misses events, and is told how many when it has caught up: what waits for it is bounded.
// Thread safety: none.
class LiveStreams {
 public:
  explicit LiveStreams(size_t most) : most_(most) {}

  // Whether there was room for one more.
  bool add(std::shared_ptr<Exchange> exchange, const std::string& first);
  void remove(const std::weak_ptr<Exchange>& exchange);
  void tell(const std::string& events);
  void end();
  size_t size() const { return all_.size(); }

 private:
  struct Watching {
    std::shared_ptr<Exchange> exchange;
    uint64_t missed = 0;
  };
  size_t most_;
  std::vector<Watching> all_;
};

}  // namespace sluice

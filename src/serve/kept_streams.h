// Streams of events that a client may take up again after it has lost its connection.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "serve/api_error.h"
#include "serve/http_server.h"

namespace sluice {

// Each event has an id, STREAM:NUMBER, by which its client says how far it has come (Last-Event-ID of the HTML
// standard, 9.2.4). A stream goes on without a client for policy::kStreamWaits; then its answer is cancelled. A stream
// that has ended is kept as long, for what the client has missed of it. Thread safety: any thread.
class KeptStreams {
 public:
  // REQUIRES: the threads outlive end() and all streams.
  explicit KeptStreams(boost::asio::thread_pool& threads) : threads_(threads) {}

  // What is said to this client is kept from now on. With policy::kMostStreams of them the client itself, and nothing
  // is kept.
  std::shared_ptr<Exchange> keep(std::shared_ptr<Exchange> client);
  // Goes on to another client behind the event of this id. Errors: 400 for what is no id of ours, 404 for a stream that
  // is not there, or no more, and 410 for one that has become too long to be kept.
  ApiStatus take_up(const std::string& id, std::shared_ptr<Exchange> client);
  // Streams without a client are cancelled. No other is kept.
  void end();

 private:
  class Stream;
  void forget(const std::string& name);

  boost::asio::thread_pool& threads_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Stream>> streams_;
  bool ended_ = false;
};

}  // namespace sluice

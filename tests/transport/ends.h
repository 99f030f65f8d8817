// The two ends of a connection in one process, whatever carries it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "transport/fake_mpi.h"
#include "transport/mpi_job.h"
#include "transport/raw_peer.h"
#include "transport/socket_network.h"

namespace sluice::test {

// Collects what comes, and how it ended.
class Ear {
 public:
  Connection::Ears ears() {
    return {.frame = [this](Frame frame) { tell([&] { frames_.push_back(std::move(frame)); }); },
            .end = [this](const Error& error) { tell([&] { end_ = error.message; }); }};
  }
  // Waits for the next; throws when a minute has passed.
  Bytes next() {
    wait([this] { return !frames_.empty(); });
    const std::lock_guard lock(mutex_);
    const Bytes bytes(frames_.front().bytes().begin(), frames_.front().bytes().end());
    frames_.pop_front();
    return bytes;
  }
  std::string end() {
    wait([this] { return end_.has_value(); });
    const std::lock_guard lock(mutex_);
    return *end_;
  }
  bool ended() {
    const std::lock_guard lock(mutex_);
    return end_.has_value();
  }
  size_t bytes_held() {
    const std::lock_guard lock(mutex_);
    size_t n = 0;
    for (const Frame& frame : frames_) n += frame.bytes().size();
    return n;
  }

 private:
  template <class Act>
  void tell(Act act) {
    const std::lock_guard lock(mutex_);  // also while it is notified: who has heard may end this
    act();
    changed_.notify_all();
  }
  void wait(const std::function<bool()>& until) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::minutes(1), until)) throw std::runtime_error("nothing came for a minute");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Frame> frames_;
  std::optional<std::string> end_;
};

enum class Carrier : uint8_t { kTcp, kTls, kMpi };

// What two ends reach each other by.
class Ends {
 public:
  explicit Ends(Carrier carrier) : secret_(carrier == Carrier::kTls ? std::optional(secret(1)) : std::nullopt) {
    if (carrier == Carrier::kMpi) ranks_ = std::make_unique<Ranks>(2);
  }
  std::unique_ptr<Network> here() { return make_network(ranks_ ? ranks_->job(0) : nullptr, secret_); }
  std::unique_ptr<Network> there() { return make_network(ranks_ ? ranks_->job(1) : nullptr, secret_); }
  // Of who listens there.
  std::string name(const HostAddress& address) const {
    return ranks_ ? ranks_->job(0)->name(address.rank) : kHost + address.text();
  }

 private:
  const std::optional<Secret> secret_;
  std::unique_ptr<Ranks> ranks_;
};

// A process that listens and keeps the connection that it accepted.
class Server {
 public:
  explicit Server(const std::optional<Secret>& secret = {}, const ConnectionOptions& options = {})
      : Server(std::make_unique<SocketNetwork>(secret), options) {}
  explicit Server(std::unique_ptr<Network> by, const ConnectionOptions& options = {}) : network(std::move(by)) {
    const auto accept = [this](const Hello& hello, const std::shared_ptr<Connection>& connection) -> Status {
      if (hello.epoch == kFormerEpoch) return runtime_error("the pipeline has ended");
      const std::lock_guard lock(mutex_);
      accepted_ = connection;
      ++n_accepted_;
      connection->listen(ear.ears());
      return {};
    };
    address_ = network->listen({"127.0.0.1", 0}, accept, options).value();
    port = address_.port;
  }

  static constexpr uint64_t kFormerEpoch = 1;
  const HostAddress& address() const { return address_; }
  std::shared_ptr<Connection> accepted() {
    const std::lock_guard lock(mutex_);
    return accepted_;
  }
  int n_accepted() {
    const std::lock_guard lock(mutex_);
    return n_accepted_;
  }

  Ear ear;
  std::unique_ptr<Network> network;
  uint16_t port = 0;

 private:
  HostAddress address_;
  std::mutex mutex_;
  std::shared_ptr<Connection> accepted_;
  int n_accepted_ = 0;
};

inline const Hello kHello{.epoch = 42, .stage = StageId(0), .role = Hello::Role::kControl};

}  // namespace sluice::test

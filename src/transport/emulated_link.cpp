#include "transport/emulated_link.h"

#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "pipeline/delayed_queue.h"

namespace sluice {

namespace {

class EmulatedLink final : public Connection {
 public:
  EmulatedLink(std::shared_ptr<Connection> to, LinkClock link)
      : to_(std::move(to)), link_(link), thread_([this] { deliver(); }) {}
  ~EmulatedLink() override {
    on_the_way_.close();
    thread_.join();
  }

  void listen(Ears ears) override { to_->listen(std::move(ears)); }
  Status send(Bytes frame, Priority priority) override {
    const std::lock_guard lock(mutex_);
    if (failed_) return tl::unexpected<Error>(*failed_);
    const double now = std::chrono::duration<double>(DelayClock::now() - start_).count();
    const double arrival = link_.send(now, static_cast<double>(frame.size()));
    on_the_way_.push({std::move(frame), priority}, start_ + delay_of(arrival));
    return {};
  }
  Bytes buffer() override { return to_->buffer(); }
  void close() override { to_->close(); }
  void close_because(const Error& error) override { to_->close_because(error); }
  const std::string& peer() const override { return to_->peer(); }
  uint64_t peer_progress() const override { return to_->peer_progress(); }

 private:
  struct Sent {
    Bytes frame;
    Priority priority;
  };

  void deliver() {
    wait_exactly();
    while (auto sent = on_the_way_.pop()) {
      const Status passed = to_->send(std::move(sent->frame), sent->priority);
      if (passed) continue;
      const std::lock_guard lock(mutex_);
      failed_ = passed.error();
      return;
    }
  }

  const std::shared_ptr<Connection> to_;
  const DelayClock::time_point start_ = DelayClock::now();
  DelayedQueue<Sent> on_the_way_;
  std::mutex mutex_;  // guards the next two
  LinkClock link_;
  std::optional<Error> failed_;
  std::thread thread_;  // the last to begin
};

}  // namespace

std::shared_ptr<Connection> over_link(std::shared_ptr<Connection> connection, LinkClock link) {
  if (link.is_free()) return connection;
  return std::make_shared<EmulatedLink>(std::move(connection), link);
}

}  // namespace sluice

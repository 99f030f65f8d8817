// Once a connection has carried some frames, more of the kind ask the system for no memory.
#include <gtest/gtest.h>

#include "support/counted_memory.h"
#include "transport/ends.h"

namespace sluice {
namespace {

using namespace test;

// Says how many frames have come, and forgets them.
class Counter {
 public:
  Connection::Ears ears() {
    return {.frame =
                [this](const Frame&) {
                  const std::lock_guard lock(mutex_);
                  ++n_;
                  came_.notify_all();
                },
            .end = [](const Error&) {}};
  }
  void wait_for(int64_t n) {
    std::unique_lock lock(mutex_);
    if (!came_.wait_for(lock, std::chrono::minutes(1), [&] { return n_ >= n; }))
      throw std::runtime_error("nothing came for a minute");
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  int64_t n_ = 0;
};

TEST(SteadyState, FramesAskForNoMemory) {
  Counter there;
  std::shared_ptr<Connection> accepted;
  SocketNetwork server(std::nullopt), client(std::nullopt);
  const auto at =
      server.listen({"127.0.0.1", 0}, [&](const Hello&, const std::shared_ptr<Connection>& connection) -> Status {
        accepted = connection;
        connection->listen(there.ears());
        return {};
      });
  ASSERT_TRUE(at);
  const auto connection = client.connect(*at, kHello).value();
  const Message small = StageReport{}, large = Batch{.id = BatchId(1), .hidden = std::vector<float>(40000)};
  int64_t n = 0;
  const auto send = [&](int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
      ASSERT_TRUE(connection->send(i % 2 == 0 ? small : large, i % 2 == 0 ? Priority::kUrgent : Priority::kBulk));
      there.wait_for(++n);
    }
  };
  send(200);
  const int64_t before = allocations();
  send(1000);
  EXPECT_LT(allocations() - before, 10) << "heartbeats may grow something";
}

}  // namespace
}  // namespace sluice

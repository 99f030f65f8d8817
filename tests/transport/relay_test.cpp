// An edge by way of a third process: what goes on, in which order, and how much may wait.
#include "transport/relay.h"

#include <gtest/gtest.h>

#include "transport/ends.h"

namespace sluice {
namespace {

using namespace test;

Bytes frame_of(size_t n, uint8_t first) {
  Bytes frame(n, std::byte{7});
  frame.front() = std::byte{first};
  return frame;
}

// Two stages and the process between them, which has come to both.
class Detour {
 public:
  explicit Detour(const ConnectionOptions& options = {})
      : before_(std::nullopt, options), after_(std::nullopt, options), network_({}) {
    const auto from = network_.connect(before_.address(), kHello, options).value();
    relay = std::make_unique<Relay>(from, network_.connect(after_.address(), kHello, options).value());
    from->listen({.frame = [this](Frame frame) { relay->push(std::move(frame)); }, .end = [](const Error&) {}});
  }
  ~Detour() {
    network_.stop();
    relay.reset();
  }
  std::shared_ptr<Connection> before() { return before_.accepted(); }
  Ear& after() { return after_.ear; }

  std::unique_ptr<Relay> relay;

 private:
  Server before_, after_;
  SocketNetwork network_;
};

TEST(Relay, FramesGoOnAsTheyAreInTheirOrder) {
  Detour detour;
  size_t bytes = 0;
  for (uint8_t i = 0; i < 50; ++i) {
    const size_t n = i % 7 == 0 ? 300'000 : 100;
    bytes += n;
    ASSERT_TRUE(detour.before()->send(frame_of(n, i), Priority::kBulk));
  }
  for (uint8_t i = 0; i < 50; ++i) EXPECT_EQ(detour.after().next(), frame_of(i % 7 == 0 ? 300'000 : 100, i));
  EXPECT_EQ(detour.relay->batches(), 50u);
  EXPECT_EQ(detour.relay->bytes(), bytes);
}

TEST(Relay, AStageThatIsSlowerLetsTheOneBeforeWait) {
  Detour detour({.patience = 60, .most_waiting = 1 << 20});
  constexpr int kFrames = 1000;
  std::atomic<int> sent = 0;
  std::thread sender([&, before = detour.before()] {
    for (int i = 0; i < kFrames; ++i) {
      if (!before->send(frame_of(100'000, 1), Priority::kBulk)) return;
      ++sent;
    }
  });
  for (int last = -1; last != sent || sent == 0;) {
    last = sent;
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
  EXPECT_LT(sent, kFrames);
  EXPECT_LE(detour.after().bytes_held(), (size_t{1} << 20) + 2 * 100'000);
  for (int i = 0; i < kFrames; ++i) EXPECT_EQ(detour.after().next().size(), 100'000u);
  sender.join();
  EXPECT_EQ(sent, kFrames);
}

TEST(Relay, ItsTimeIsThatHereAndHalfTheRoundTripOnward) {
  Detour detour;
  ASSERT_TRUE(detour.before()->send(frame_of(100, 1), Priority::kBulk));
  detour.after().next();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double here = detour.relay->seconds();
  detour.relay->heard(0.1);  // the stage computed for 0.1 of the 0.3 s
  EXPECT_GE(detour.relay->seconds() - here, 0.1);
  EXPECT_LT(detour.relay->seconds() - here, 5.0);
  detour.relay->heard(0.0);
  EXPECT_LT(detour.relay->seconds() - here, 5.0) << "of a batch that never went";
}

TEST(Relay, EndsWhileFramesWait) {
  Detour detour({.patience = 60, .most_waiting = 1 << 16});
  std::thread sender([before = detour.before()] {
    while (before->send(frame_of(100'000, 1), Priority::kBulk)) {
    }
  });
  detour.after().next();
  detour.relay->close();
  sender.join();
}

}  // namespace
}  // namespace sluice

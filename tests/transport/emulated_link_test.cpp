// Real frames over links that are not there: sooner than these would bring them nothing comes.
#include "transport/emulated_link.h"

#include <gtest/gtest.h>

#include "transport/ends.h"

namespace sluice {
namespace {

using namespace test;

// A client's connection, and what the server hears of it.
struct Ends {
  Server server;
  SocketNetwork network{std::nullopt};
  std::shared_ptr<Connection> connection = network.connect(server.address(), kHello).value();
};

Bytes frame(size_t n_bytes, uint8_t content) { return Bytes(n_bytes, std::byte{content}); }

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

TEST(EmulatedLink, AFrameTakesTheLatencyAndItsBytesTheirTime) {
  Ends ends;
  const auto way = over_link(ends.connection, {{.latency = 0.05, .bandwidth = 1e5}, {}});
  const auto begin = std::chrono::steady_clock::now();
  for (uint8_t i = 0; i < 3; ++i) ASSERT_TRUE(way->send(frame(1000, i), Priority::kBulk));
  for (uint8_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ends.server.ear.next(), frame(1000, i));
    EXPECT_GE(seconds_since(begin), 0.05 + 0.01 * (i + 1)) << "one at a time";
  }
}

TEST(EmulatedLink, WhatGoesByAnotherOneOvertakes) {
  Ends ends;
  const auto slow = over_link(ends.connection, {{.latency = 0.5, .bandwidth = 0}, {}});
  const auto fast = over_link(ends.connection, {{.latency = 0.001, .bandwidth = 0}, {}});
  ASSERT_TRUE(slow->send(frame(200000, 1), Priority::kBulk));
  ASSERT_TRUE(fast->send(frame(10, 2), Priority::kUrgent));
  EXPECT_EQ(ends.server.ear.next(), frame(10, 2));
  EXPECT_EQ(ends.server.ear.next(), frame(200000, 1));
}

TEST(EmulatedLink, OneThatCostsNothingIsTheConnectionItself) {
  Ends ends;
  EXPECT_EQ(over_link(ends.connection, LinkClock()), ends.connection);
}

TEST(EmulatedLink, ThatItsConnectionHasEndedIsSaidToWhoSendsLater) {
  Ends ends;
  const auto way = over_link(ends.connection, {{.latency = 1e-6, .bandwidth = 0}, {}});
  ends.connection->close();
  Status sent;
  for (int i = 0; i < 6000 && sent; ++i) {
    sent = way->send(frame(1, 0), Priority::kUrgent);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_FALSE(sent);
  EXPECT_NE(sent.error().message.find(ends.server.address().text()), std::string::npos) << sent.error().message;
}

TEST(EmulatedLink, MayGoWhileFramesAreOnIt) {
  Ends ends;
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(over_link(ends.connection, {{.latency = 1e3, .bandwidth = 0}, {}})->send(frame(1, 0), Priority::kBulk));
  EXPECT_LT(seconds_since(begin), 500);
  EXPECT_TRUE(ends.connection->send(frame(1, 1), Priority::kBulk));
  EXPECT_EQ(ends.server.ear.next(), frame(1, 1));
}

}  // namespace
}  // namespace sluice

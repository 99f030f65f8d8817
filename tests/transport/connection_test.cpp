// Two ends that mean well: frames both ways, back-pressure, heartbeats, ends; over TCP, inside TLS, between MPI ranks.
#include "transport/connection.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "transport/ends.h"
#include "transport/raw_peer.h"

namespace sluice {
namespace {

using namespace test;

Bytes frame_of(size_t n, uint8_t value) { return Bytes(n, std::byte{value}); }

class Both : public testing::TestWithParam<Carrier> {
 protected:
  Ends ends_{GetParam()};
};
std::string carrier_name(const testing::TestParamInfo<Carrier>& carrier) {
  return carrier.param == Carrier::kTcp ? "Plain" : carrier.param == Carrier::kTls ? "Tls" : "Mpi";
}
INSTANTIATE_TEST_SUITE_P(, Both, testing::Values(Carrier::kTcp, Carrier::kTls, Carrier::kMpi), carrier_name);

TEST_P(Both, FramesGoEachWayInOrder) {
  Server server(ends_.there());
  Ear ear;  // outlives who speaks to it
  const auto network = ends_.here();
  const auto connection = network->connect(server.address(), kHello).value();
  connection->listen(ear.ears());
  for (uint8_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(connection->send(frame_of(1 + i * 1000u, i), Priority::kBulk));
    ASSERT_TRUE(server.accepted()->send(frame_of(5, i), Priority::kUrgent));
  }
  for (uint8_t i = 0; i < 100; ++i) {
    EXPECT_EQ(server.ear.next(), frame_of(1 + i * 1000u, i));
    EXPECT_EQ(ear.next(), frame_of(5, i));
  }
}

TEST_P(Both, AnUrgentFrameOvertakesALargeOne) {
  Server server(ends_.there());
  const auto network = ends_.here();
  const auto connection = network->connect(server.address(), kHello).value();
  ASSERT_TRUE(connection->send(frame_of(size_t{100} << 20, 1), Priority::kBulk));
  ASSERT_TRUE(connection->send(frame_of(10, 2), Priority::kUrgent));
  EXPECT_EQ(server.ear.next(), frame_of(10, 2));
  EXPECT_EQ(server.ear.next().size(), size_t{100} << 20);
}

TEST_P(Both, TheEndIsToldWithThePeersName) {
  auto server = std::make_unique<Server>(ends_.there());
  Ear ear;  // outlives who speaks to it
  const auto network = ends_.here();
  const auto connection = network->connect(server->address(), kHello).value();
  connection->listen(ear.ears());
  const std::string name = ends_.name(server->address());
  EXPECT_EQ(connection->peer(), name);
  server.reset();
  EXPECT_NE(ear.end().find(name), std::string::npos);
  const Status sent = connection->send(frame_of(1, 1), Priority::kBulk);
  ASSERT_FALSE(sent);
  EXPECT_NE(sent.error().message.find(name), std::string::npos);
}

TEST_P(Both, WhyAConnectionIsLeftIsToldToThePeer) {
  Server server(ends_.there());
  Ear ear;  // outlives who speaks to it
  const auto network = ends_.here();
  const auto connection = network->connect(server.address(), kHello).value();
  connection->listen(ear.ears());
  ASSERT_TRUE(connection->send(frame_of(100, 1), Priority::kBulk));
  server.ear.next();
  server.accepted()->close_because(Error{ErrorKind::kRuntime, "too little memory"});
  const auto told = decode(ear.next());
  ASSERT_TRUE(told && std::holds_alternative<WorkerFailed>(*told));
  EXPECT_EQ(std::get<WorkerFailed>(*told).error.message, "too little memory");
  EXPECT_NE(ear.end(), "");
}

// Whether by the network's own thread, while it tells of something, or by another.
TEST_P(Both, WhatIsAskedForFirstIsDoneFirst) {
  Server server(ends_.there());
  Ear ear;  // outlives who speaks to it
  const auto network = ends_.here();
  const auto connection = network->connect(server.address(), kHello).value();
  connection->listen(ear.ears());
  Connection& accepted = *server.accepted();
  accepted.listen({.frame =
                       [&accepted](const Frame&) {
                         accepted.close_because(Error{ErrorKind::kRuntime, "too little memory"});
                         std::thread([&accepted] { accepted.close(); }).join();
                       },
                   .end = [](const Error&) {}});
  ASSERT_TRUE(connection->send(frame_of(1, 1), Priority::kBulk));
  const auto told = decode(ear.next());
  ASSERT_TRUE(told && std::holds_alternative<WorkerFailed>(*told));
  EXPECT_EQ(std::get<WorkerFailed>(*told).error.message, "too little memory");
}

TEST_P(Both, APeerOfAFormerPipelineIsRefusedInOneLine) {
  Server server(ends_.there());
  const auto network = ends_.here();
  Hello former = kHello;
  former.epoch = Server::kFormerEpoch;
  const auto refused = network->connect(server.address(), former);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, ends_.name(server.address()) + ": the pipeline has ended");
}

TEST_P(Both, WhoIsNotListenedToWaits) {
  const ConnectionOptions small{.patience = 60, .most_waiting = 1 << 20};
  Server server(ends_.there(), small);
  const auto network = ends_.here();
  const auto connection = network->connect(server.address(), kHello, small).value();
  std::atomic<int> sent = 0;
  constexpr int kFrames = 400;
  std::thread sender([&] {
    for (int i = 0; i < kFrames; ++i) {
      if (!connection->send(frame_of(100'000, 1), Priority::kBulk)) return;
      ++sent;
    }
  });
  // The ear keeps its frames: until some are taken, what is held does not pass the bound by more than what one read
  // brings, and the sender stands still.
  for (int before = -1; before != sent || sent == 0;) {
    before = sent;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  EXPECT_LT(sent, kFrames);
  EXPECT_LE(server.ear.bytes_held(), (size_t{1} << 20) + 2 * 100'000);
  for (int i = 0; i < kFrames; ++i) EXPECT_EQ(server.ear.next().size(), 100'000u);
  sender.join();
  EXPECT_EQ(sent, kFrames);
}

TEST_P(Both, HeartbeatsSayHowFarThePeerHasGot) {
  std::atomic<uint64_t> work = 7;
  ConnectionOptions options;
  options.progress = [&] { return work.load(); };
  Server server(ends_.there(), options);
  Ear ear;  // outlives who speaks to it
  const auto network = ends_.here();
  const auto connection = network->connect(server.address(), kHello).value();
  connection->listen(ear.ears());
  const auto wait_for = [&](uint64_t progress) {
    for (int i = 0; i < 6000 && connection->peer_progress() != progress; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return connection->peer_progress();
  };
  EXPECT_EQ(wait_for(7), 7u);
  work = 8;
  EXPECT_EQ(wait_for(8), 8u);
}

// Longer than the patience, with nothing to say but heartbeats.
TEST_P(Both, APeerThatHasNothingToSayIsNotGivenUp) {
  const ConnectionOptions options{.patience = 4};
  Server server(ends_.there(), options);
  Ear ear;  // outlives who speaks to it
  const auto network = ends_.here();
  const auto connection = network->connect(server.address(), kHello, options).value();
  connection->listen(ear.ears());
  std::this_thread::sleep_for(std::chrono::seconds(6));
  EXPECT_FALSE(ear.ended());
  EXPECT_FALSE(server.ear.ended());
  ASSERT_TRUE(connection->send(frame_of(3, 1), Priority::kBulk));
  EXPECT_EQ(server.ear.next(), frame_of(3, 1));
}

TEST_P(Both, ANetworkMayGoBeforeItsConnections) {
  Server server(ends_.there());
  std::shared_ptr<Connection> kept;
  {
    const auto network = ends_.here();
    kept = network->connect(server.address(), kHello).value();
  }
  EXPECT_FALSE(kept->send(frame_of(1, 1), Priority::kBulk));
  kept->close();
}

}  // namespace
}  // namespace sluice

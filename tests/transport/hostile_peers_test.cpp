// Peers that mean no good, or are something else: nobody is harmed, nobody else waits for them.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string_view>
#include <thread>

#include "transport/ends.h"
#include "transport/raw_peer.h"

namespace {
std::atomic<bool> found = false;  // the name that takes long
}  // namespace

// The system's, but for one name.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints, addrinfo** results) {
  for (const bool slow = name != nullptr && std::string_view(name) == "slow.invalid"; slow && !found;)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  static const auto systems = reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  return systems(name, service, hints, results);
}

namespace sluice {
namespace {

using namespace test;

std::string error_of(const Result<std::shared_ptr<Connection>>& connection) {
  return connection ? "none" : connection.error().message;
}

std::string connect(const HostAddress& to, const std::optional<Secret>& secret = {}, double seconds = 10) {
  SocketNetwork network(secret);
  return error_of(network.connect(to, kHello, {.connect = seconds}));
}

testing::AssertionResult says(const std::string& text, const std::vector<std::string>& words) {
  for (const std::string& word : words)
    if (text.find(word) == std::string::npos) return testing::AssertionFailure() << "'" << text << "' lacks " << word;
  if (text.find('\n') != std::string::npos) return testing::AssertionFailure() << "more than a line: " << text;
  return testing::AssertionSuccess();
}

// What was sent in the clear to a raw peer, or nothing.
std::string told_to(RawPeer& peer) {
  std::string told;
  ChunkReader reader(1 << 20);
  const ChunkReader::Sink sink{.frame =
                                   [&](Bytes frame, Priority) {
                                     const auto message = decode(frame);
                                     if (!message) return;
                                     if (const auto* failed = std::get_if<WorkerFailed>(&*message))
                                       told += failed->error.message;
                                     else
                                       told += "[another message]";
                                   },
                               .beat = [&](uint64_t) { told += "[heartbeat]"; }};
  static_cast<void>(reader.take(peer.read_to_end(), sink));
  return told;
}

TEST(HostilePeers, WithoutTheSecretNobodyIsLetInEitherWay) {
  Server with(secret(1)), without;
  const std::string name = with.address().text();
  EXPECT_TRUE(says(connect(with.address(), secret(2)), {name, "another secret", "--secret"}));
  EXPECT_TRUE(says(connect(with.address()), {name, "--secret"}));
  EXPECT_TRUE(says(connect(without.address(), secret(1)), {without.address().text(), "--secret"}));
  EXPECT_EQ(with.n_accepted() + without.n_accepted(), 0);
  EXPECT_EQ(connect(with.address(), secret(1)), "none");
}

TEST(HostilePeers, WithoutTheSecretNoMessageCanBeRead) {
  Server server(secret(1));
  RawPeer stranger(server.port);
  stranger.send(Message(kHello));
  EXPECT_EQ(told_to(stranger), "");
  EXPECT_EQ(server.n_accepted(), 0);
}

TEST(HostilePeers, OtherMachinesNeedASecret) {
  EXPECT_TRUE(says(connect({"192.0.2.1", 7001}), {"192.0.2.1:7001", "sluice secret", "--secret"}));
  SocketNetwork network({});
  const auto accept = [](const Hello&, const std::shared_ptr<Connection>&) { return Status(); };
  const auto listening = network.listen({"0.0.0.0", 0}, accept);
  ASSERT_FALSE(listening);
  EXPECT_TRUE(says(listening.error().message, {"--listen 0.0.0.0:0", "sluice secret", "--secret"}));
  SocketNetwork safe(secret(1));
  EXPECT_TRUE(safe.listen({"0.0.0.0", 0}, accept));
}

TEST(HostilePeers, APortInUseIsNamed) {
  const Server server;
  SocketNetwork network({});
  const auto second = network.listen(server.address(), [](const Hello&, const auto&) { return Status(); });
  ASSERT_FALSE(second);
  EXPECT_TRUE(says(second.error().message, {server.address().text(), "in use", "another port"}));
}

TEST(HostilePeers, WhereNobodyListensThatIsSaid) {
  uint16_t port = 0;
  { port = RawListener().port(); }
  EXPECT_TRUE(says(connect({"127.0.0.1", port}), {"127.0.0.1:" + std::to_string(port), "sluice stage"}));
  EXPECT_TRUE(says(connect({"no-such-name.invalid", 7001}), {"no-such-name.invalid:7001", "name"}));
}

TEST(HostilePeers, ANameThatTakesLongToFindHoldsUpNoOther) {
  const Server server;
  SocketNetwork network({});
  std::thread slow([&] { EXPECT_FALSE(network.connect({"slow.invalid", 7001}, kHello)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(error_of(network.connect({"localhost", server.port}, kHello)), "none");
  found = true;
  slow.join();
}

TEST(HostilePeers, SomethingElseThatListensIsToldApart) {
  RawListener listener;
  std::thread other([&] {
    const auto peer = listener.accept();
    peer->send("HTTP/1.1 400 Bad Request\r\n\r\n");
    static_cast<void>(peer->read_to_end());
  });
  EXPECT_TRUE(says(connect({"127.0.0.1", listener.port()}), {"127.0.0.1:", "no sluice"}));
  other.join();
  std::thread closing([&] { listener.accept(); });
  EXPECT_TRUE(says(connect({"127.0.0.1", listener.port()}), {"127.0.0.1:", "is it a sluice"}));
  closing.join();
}

TEST(HostilePeers, ASilentHostIsGivenUp) {
  for (const auto& secret : {std::optional<Secret>(), std::optional(test::secret(1))}) {
    const RawListener listener;
    EXPECT_TRUE(says(connect({"127.0.0.1", listener.port()}, secret, 1), {"127.0.0.1:", "within 1 s"}));
  }
}

TEST(HostilePeers, APeerOfAnotherVersionIsTold) {
  Server server;
  RawPeer peer(server.port);
  Bytes hello = encode(kHello);
  hello[4] = std::byte{kWireVersion + 1};
  ChunkWriter writer;
  writer.add(std::move(hello), Priority::kUrgent);
  Bytes bytes;
  writer.fill(bytes);
  peer.send(bytes);
  EXPECT_TRUE(says(told_to(peer), {"version", "same release"}));
}

TEST(HostilePeers, AMessageBeforeTheHelloIsRefused) {
  Server server;
  RawPeer peer(server.port);
  peer.send(Message(Batch{}));
  EXPECT_TRUE(says(told_to(peer), {"before its hello"}));
  EXPECT_EQ(server.n_accepted(), 0);
}

TEST(HostilePeers, AStrangerCannotSendMuch) {
  Server server;
  RawPeer peer(server.port);
  Batch large;
  large.hidden.resize(10'000);
  peer.send(Message(large));
  EXPECT_TRUE(says(told_to(peer), {"a frame of more than 4096 bytes"}));
}

TEST(HostilePeers, WhoStopsInTheMiddleOfAFrameIsGivenUpAndHoldsUpNobody) {
  Server server(std::nullopt, {.patience = 2});
  RawPeer slow(server.port);
  slow.send(Message(kHello));
  Bytes bytes = chunks_of(Batch{.id = BatchId(1), .hidden = std::vector<float>(1000)});
  bytes.resize(bytes.size() / 2);
  slow.send(bytes);
  // Others are served meanwhile.
  Server other_of_same_process;
  SocketNetwork network({});
  const auto connection = network.connect(server.address(), kHello);
  EXPECT_TRUE(connection);
  slow.read_to_end();
}

// It goes on with heartbeats, so it lives; but the frame is never whole.
TEST(HostilePeers, WhoNeverEndsAFrameIsGivenUp) {
  Server server(std::nullopt, {.patience = 2});
  RawPeer peer(server.port);
  peer.send(Message(kHello));
  ChunkWriter writer;
  writer.add(Bytes(3 * kChunkBytes), Priority::kBulk);
  Bytes first, beat;
  writer.fill(first);
  peer.send(first);
  std::atomic<bool> over = false;
  std::thread heart([&] {
    ChunkWriter beats;
    while (!over) {
      beats.beat(1);
      beats.fill(beat);
      peer.send(beat);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  EXPECT_TRUE(says(server.ear.end(), {"in the middle of a frame"}));
  over = true;
  heart.join();
}

TEST(HostilePeers, ASilentStrangerIsSentAway) {
  Server server(std::nullopt, {.connect = 1}), safe(secret(1), {.connect = 1});
  for (const uint16_t port : {server.port, safe.port}) {
    RawPeer peer(port);
    static_cast<void>(peer.read_to_end());
    RawPeer half(port);
    half.send("S");
    static_cast<void>(half.read_to_end());
  }
}

TEST(HostilePeers, ManySilentStrangersKeepNobodyOut) {
  Server plain(std::nullopt, {.connect = 300}), safe(secret(1), {.connect = 300});
  std::vector<std::unique_ptr<RawPeer>> strangers;
  for (int i = 0; i < 200; ++i) strangers.push_back(std::make_unique<RawPeer>(i % 2 == 0 ? plain.port : safe.port));
  EXPECT_EQ(connect(plain.address()), "none");
  EXPECT_EQ(connect(safe.address(), secret(1)), "none");
}

// Bytes of all kinds, before and after the hello: the server lives and serves the next one.
TEST(HostilePeers, ArbitraryBytesDoNoHarm) {
  std::mt19937_64 random(7);
  Server plain, safe(secret(1));
  for (int i = 0; i < 200; ++i) {
    RawPeer peer(i % 4 == 3 ? safe.port : plain.port);
    Bytes bytes = i % 2 == 0 ? chunks_of(kHello) : Bytes();
    for (uint64_t n = random() % 500; n > 0; --n) bytes.push_back(static_cast<std::byte>(random()));
    if (i % 3 == 0) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    peer.send(bytes);
  }
  EXPECT_EQ(connect(plain.address()), "none");
  EXPECT_EQ(connect(safe.address(), secret(1)), "none");
}

}  // namespace
}  // namespace sluice

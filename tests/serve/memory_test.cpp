// What requests leave behind when they are over: nothing that grows with their number.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "serve/http_client.h"
#include "serve/policy.h"
#include "serve/served.h"
#include "support/counted_memory.h"

namespace sluice::test {
namespace {

using nlohmann::json;

void wait_until_idle(const Server& server) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto idle = [&] { return server.load().running + server.load().waiting + server.at_work() == 0; };
  while (!idle() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(idle());
}

// Bytes that are held when nothing runs and the requests that are kept are always the same.
int64_t settled(const Server& server) {
  wait_until_idle(server);
  for (size_t i = 0; i <= policy::kKeptRequests; ++i)
    EXPECT_EQ(post(server.address(), kCompletions, {{"prompt", "one two"}, {"max_tokens", 2}}).status, 200);
  wait_until_idle(server);
  return live_bytes();
}

// A hundred clients that have done something once, do it three times more: then hardly more is held each time. (Once it
// may be: as many as never before were there at a time.)
template <class Act>
void expect_nothing_left(Act act) {
  const auto server = serve();
  act(*server);
  int64_t before = settled(*server), grown = std::numeric_limits<int64_t>::max();
  for (int round = 0; round < 3; ++round) {
    act(*server);
    const int64_t after = settled(*server);
    grown = std::min(grown, after - before);
    before = after;
  }
  EXPECT_LT(grown, 100 * 100);
}

TEST(ServeMemory, StreamsThatAreBrokenOffLeaveNothing) {
  expect_nothing_left([](const Server& server) {
    for (int i = 0; i < 100; ++i) {
      std::string text = "one two three";
      for (int more = i % 20; more > 0; --more) text += " one two";
      const json body = {{"prompt", text}, {"max_tokens", 300}, {"ignore_eos", true}, {"stream", i % 3 > 0}};
      HttpClient client(server.address());
      client.send(http_request("POST", kCompletions, body.dump()));
      if (i % 3 == 1) client.read_at_least(static_cast<size_t>(i * 10));
    }
    wait_until_idle(server);
  });
}

TEST(ServeMemory, RequestsThatAreRefusedLeaveNothing) {
  expect_nothing_left([](const Server& server) {
    for (int i = 0; i < 100; ++i) {
      EXPECT_EQ(post(server.address(), kChat, {{"messages", i}}).status, 400);
      EXPECT_EQ(ask(server.address(), "POST", kChat, std::string(100, '{')).status, 400);
      EXPECT_EQ(post(server.address(), kCompletions, {{"prompt", "x"}, {"x" + std::to_string(i), 1}}).status, 400);
      HttpClient half(server.address());
      half.send("POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
    }
  });
}

}  // namespace
}  // namespace sluice::test

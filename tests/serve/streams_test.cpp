// Streams that a client takes up again after it has lost its connection.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <tuple>
#include <utility>

#include "serve/http_client.h"
#include "serve/http_server.h"
#include "serve/kept_streams.h"
#include "serve/policy.h"
#include "serve/served.h"

namespace sluice::test {
namespace {

using nlohmann::json;

json asked(int tokens) {
  return {{"prompt", "one two"}, {"max_tokens", tokens}, {"ignore_eos", true}, {"seed", 5},
          {"stream", true},      {"resumable", true},    {"method", "surge"}};
}

std::string text_in(const std::string& events) {
  std::string text;
  for (size_t at = events.find("data: {"); at != events.npos; at = events.find("data: {", at + 1)) {
    const auto event = json::parse(events.substr(at + 6, events.find('\n', at) - at - 6), nullptr, false);
    if (!event.is_discarded() && !event["choices"].empty()) text += event["choices"][0].value("text", "");
  }
  return text;
}

// Up to the last whole event: its id, and the text so far.
std::pair<std::string, std::string> read_part(const std::string& bytes) {
  const std::string whole = bytes.substr(0, bytes.rfind("\n\n") + 2);
  const size_t id = whole.rfind("id: ");
  return {whole.substr(id + 4, whole.find('\n', id) - id - 4), text_in(whole)};
}

HttpAnswer take_up(const std::string& address, const std::string& id) {
  return ask(address, "GET", "/v1/streams", "", "Last-Event-ID: " + id + "\r\n");
}

// Who takes a stream up is told by the server's thread what there is, and by another what comes next.
TEST(ServeStreams, WhatIsSaidFirstComesFirst) {
  const auto handle = [](const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
    exchange->stream("data: 1\n\n");
    std::thread([&exchange] {
      exchange->stream("data: 2\n\n");
      exchange->end_stream();
    }).join();
  };
  const auto server = HttpServer::open({}, {.screen = [](const HttpRequest&) { return std::nullopt; },
                                            .handle = handle,
                                            .error = [](auto&&...) { return std::string(); }})
                          .value();
  EXPECT_EQ(ask(server->address(), "GET", "/").body, "data: 1\n\ndata: 2\n\n");
}

TEST(ServeStreams, AStreamIsTakenUpWhereItWasLost) {
  const auto server = serve({}, slow_session());
  const json body = asked(24);
  const std::string expected = expected_of(body).text;
  std::string id, text;
  {
    HttpClient client(server->address());
    client.send(http_request("POST", "/v1/completions", body.dump()));
    client.read_at_least(1500);
    std::tie(id, text) = read_part(client.unread());
  }
  EXPECT_LT(text.size(), expected.size());
  for (int again = 0; again < 2; ++again) {  // the second time it has ended already
    const HttpAnswer rest = take_up(server->address(), id);
    EXPECT_EQ(rest.status, 200) << rest.body;
    EXPECT_EQ(text + text_in(rest.body), expected);
    EXPECT_TRUE(rest.body.ends_with("data: [DONE]\n\n"));
  }
  const HttpAnswer all = take_up(server->address(), id.substr(0, id.rfind(':')) + ":0");
  EXPECT_EQ(text_in(all.body), expected);
}

TEST(ServeStreams, WithoutBeingAskedForThereIsNoId) {
  const auto server = serve();
  json body = asked(4);
  body.erase("resumable");
  EXPECT_EQ(post(server->address(), "/v1/completions", body).body.find("id: "), std::string::npos);
}

TEST(ServeStreams, RefusesWhatMakesNoSense) {
  const auto server = serve();
  json body = asked(4);
  body["stream"] = false;
  EXPECT_EQ(post(server->address(), "/v1/completions", body).json()["error"]["param"], "resumable");
  for (const char* id : {"", "5", "a:b", "stream-1:-1", "stream-1:99999999999999999999999"})
    EXPECT_EQ(take_up(server->address(), id).status, 400) << id;
  EXPECT_EQ(take_up(server->address(), "stream-1:5").status, 404);
  const HttpAnswer answer = post(server->address(), "/v1/completions", asked(4));
  const std::string id = read_part(answer.body).first;
  EXPECT_EQ(take_up(server->address(), id).status, 200);
  EXPECT_EQ(take_up(server->address(), id + "0").status, 400) << "an event that there is not";
}

// A client that goes when it is told to.
class Client : public Exchange {
 public:
  void reply(HttpReply reply) override { told += reply.body; }
  void stream(std::string events) override { told += events; }
  void end_stream() override { ended = true; }
  void on_gone(std::function<void()> gone) override { gone_ = std::move(gone); }
  bool gone() const override { return false; }
  void go() { gone_(); }

  std::string told;
  bool ended = false;

 private:
  std::function<void()> gone_;
};

class KeptStreamsTest : public testing::Test {
 protected:
  ~KeptStreamsTest() override {
    streams_.end();
    threads_.join();
  }
  std::shared_ptr<Client> client_ = std::make_shared<Client>(), other_ = std::make_shared<Client>();
  boost::asio::thread_pool threads_{1};
  KeptStreams streams_{threads_};
  bool cancelled_ = false;
};

TEST_F(KeptStreamsTest, WhatWasMissedIsToldAndThenWhatComes) {
  const auto stream = streams_.keep(client_);
  stream->on_gone([this] { cancelled_ = true; });
  stream->stream("data: 1\n\nevent: x\ndata: 2\n\n");
  const auto [id, text] = read_part(client_->told);
  EXPECT_TRUE(id.ends_with(":2")) << client_->told;
  client_->go();
  stream->stream("data: 3\n\n");
  ASSERT_TRUE(streams_.take_up(id, other_));
  stream->stream("data: 4\n\n");
  stream->end_stream();
  const std::string name = id.substr(0, id.size() - 1);
  EXPECT_EQ(other_->told, "id: " + name + "3\ndata: 3\n\nid: " + name + "4\ndata: 4\n\n");
  EXPECT_TRUE(other_->ended);
  EXPECT_FALSE(cancelled_);
}

TEST_F(KeptStreamsTest, WhoTakesItUpTakesItFromWhoStillReads) {
  const auto stream = streams_.keep(client_);
  stream->on_gone([this] { cancelled_ = true; });
  stream->stream("data: 1\n\n");
  ASSERT_TRUE(streams_.take_up(read_part(client_->told).first, other_));
  EXPECT_TRUE(client_->ended);
  client_->go();
  stream->stream("data: 2\n\n");
  EXPECT_NE(other_->told.find("data: 2"), std::string::npos);
  EXPECT_FALSE(stream->gone());
  EXPECT_FALSE(cancelled_);
}

TEST_F(KeptStreamsTest, AtTheEndWhatNobodyReadsIsCancelled) {
  const auto alone = streams_.keep(client_), read = streams_.keep(other_);
  alone->on_gone([this] { cancelled_ = true; });
  read->on_gone([] { FAIL() << "it has a client"; });
  client_->go();
  streams_.end();
  EXPECT_TRUE(cancelled_);
  EXPECT_TRUE(alone->gone());
  EXPECT_FALSE(read->gone());
  EXPECT_EQ(streams_.keep(client_), client_) << "nothing is kept any more";
}

TEST_F(KeptStreamsTest, WhatIsBeingGivenUpIsNotTakenUp) {
  const auto stream = streams_.keep(client_);
  stream->stream("data: 1\n\n");
  const std::string id = read_part(client_->told).first;
  ApiStatus taken;
  stream->on_gone([&] { taken = streams_.take_up(id, other_); });
  client_->go();
  streams_.end();
  ASSERT_FALSE(taken) << "its answer would never have ended";
  EXPECT_EQ(taken.error().status, 404);
}

TEST_F(KeptStreamsTest, WhatIsRefusedTakesNoPlace) {
  for (size_t i = 0; i < policy::kMostStreams; ++i) streams_.keep(client_)->reply({.status = 429});
  EXPECT_NE(streams_.keep(client_), client_);
}

TEST_F(KeptStreamsTest, OneThatIsTooLongGoesOnAndCannotBeTakenUp) {
  const auto stream = streams_.keep(client_);
  const std::string event = "data: " + std::string(1 << 20, 'x') + "\n\n";
  for (int i = 0; i < 5; ++i) stream->stream(event);
  EXPECT_GT(client_->told.size(), 5u << 20);
  const auto taken = streams_.take_up(read_part(client_->told).first, other_);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().status, 410);
}

}  // namespace
}  // namespace sluice::test

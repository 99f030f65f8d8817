// Who may come, how many at a time, and what becomes of who goes away.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "serve/http_client.h"
#include "serve/served.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

using nlohmann::json;

// Of more tokens than anybody waits for, from the slow session.
json endless(bool stream) {
  return {{"prompt", "one two"}, {"ignore_eos", true}, {"stream", stream}, {"method", "ar"}};
}

bool soon_at_work(const Server& server, size_t running, size_t waiting = 0) {
  return soon([&] { return server.load().running == running && server.load().waiting == waiting; });
}

TEST(ServeConnections, WhoGoesAwayIsComputedForNoLonger) {
  const auto server = serve({}, slow_session());
  for (const bool stream : {true, false}) {
    {
      HttpClient client(server->address());
      client.send(http_request("POST", kCompletions, endless(stream).dump()));
      ASSERT_TRUE(soon_at_work(*server, 1));
      if (stream) client.read_at_least(300);
    }
    EXPECT_TRUE(soon_at_work(*server, 0)) << "its answer would have taken longer";
  }
}

TEST(ServeConnections, WhoWaitsInTheQueueMayGoAwayToo) {
  ServerOptions options;
  options.concurrency = 1;
  options.queue = 1;
  const auto server = serve(options, slow_session());
  HttpClient first(server->address());
  first.send(http_request("POST", kCompletions, endless(true).dump()));
  ASSERT_TRUE(soon_at_work(*server, 1));
  {
    HttpClient second(server->address());
    second.send(http_request("POST", kCompletions, endless(true).dump()));
    ASSERT_TRUE(soon_at_work(*server, 1, 1));
    const HttpAnswer third = post(server->address(), kCompletions, endless(true));
    EXPECT_EQ(third.status, 429) << third.body;
    EXPECT_EQ(third.json()["error"]["code"], "queue_full");
  }
  EXPECT_TRUE(soon_at_work(*server, 1, 0));
}

TEST(ServeConnections, AServerMayEndWhileItAnswers) {
  auto server = serve({}, slow_session());
  HttpClient client(server->address());
  client.send(http_request("POST", kCompletions, endless(true).dump()));
  client.read_at_least(300);
  server.reset();
  EXPECT_EQ(client.read().status, 200);
  EXPECT_TRUE(client.ended());
}

// Of a few tokens from the slow session, so that something happens before it ends.
json unhurried(bool stream) {
  json body = endless(stream);
  body["max_tokens"] = 12;
  return body;
}

TEST(ServeConnections, AServerThatDrainsAnswersWhoHasAskedAndNobodyElse) {
  const auto server = serve({}, slow_session());
  HttpClient streaming(server->address()), whole(server->address());
  streaming.send(http_request("POST", kCompletions, unhurried(true).dump()));
  whole.send(http_request("POST", kCompletions, unhurried(false).dump()));
  ASSERT_TRUE(soon_at_work(*server, 2));
  EXPECT_EQ(server->at_work(), 2u);
  std::thread draining([&] { server->drain(60); });
  HttpAnswer late;
  EXPECT_TRUE(soon([&] {
    late = post(server->address(), kCompletions, {{"prompt", "one"}, {"max_tokens", 1}});
    return late.status == 503;
  }));
  EXPECT_EQ(late.json()["error"]["code"], "draining") << late.body;
  EXPECT_EQ(ask(server->address(), "GET", "/health").status, 503);
  EXPECT_TRUE(events_of(streaming.read().body).back().is_null());
  EXPECT_EQ(whole.read().json()["usage"]["completion_tokens"], 12);
  draining.join();
  EXPECT_EQ(server->at_work(), 0u);
}

TEST(ServeConnections, DrainingHasAnEnd) {
  const auto server = serve({}, slow_session());
  HttpClient client(server->address());
  client.send(http_request("POST", kCompletions, endless(true).dump()));
  ASSERT_TRUE(soon_at_work(*server, 1));
  server->drain(0.2);
  EXPECT_EQ(server->at_work(), 1u);
}

TEST(ServeConnections, WhatEndsTheEngineIsToldToAll) {
  const std::string model = temp_path("spoilt.gguf");
  std::filesystem::copy_file(served_model(), model);
  const Session session = slow_session_of(model);
  const auto server = serve({}, session);
  HttpClient streaming(server->address()), waiting(server->address());
  streaming.send(http_request("POST", kCompletions, endless(true).dump()));
  waiting.send(http_request("POST", kCompletions, endless(false).dump()));
  ASSERT_TRUE(soon_at_work(*server, 2));
  std::ofstream(model, std::ios::app) << "x";
  const json last = events_of(streaming.read().body).back();
  ASSERT_TRUE(last.is_object() && last.contains("error")) << last;
  EXPECT_NE(last["error"]["message"].get<std::string>().find(model), std::string::npos) << last;
  EXPECT_EQ(waiting.read().status, 503);
  EXPECT_TRUE(soon([&] { return server->failure().has_value(); }));
  EXPECT_EQ(ask(server->address(), "GET", "/health").status, 503);
  EXPECT_EQ(post(server->address(), kCompletions, endless(false)).status, 503);
}

TEST(ServeConnections, OnlyWhoHasTheKeyIsServed) {
  ServerOptions options;
  options.api_key = "a-key-of-ours";
  const auto server = serve(options);
  const std::string body = R"({"prompt": "one", "max_tokens": 1})";
  for (const char* header : {"", "Authorization: Bearer another-key-x\r\n", "Authorization: Bearer \r\n",
                             "Authorization: a-key-of-ours\r\n", "Authorization: Bearer a-key-of-ours-and-more\r\n"}) {
    const HttpAnswer answer = ask(server->address(), "POST", kCompletions, body, header);
    EXPECT_EQ(answer.status, 401) << header;
    EXPECT_EQ(answer.json()["error"]["code"], "invalid_api_key");
    EXPECT_EQ(ask(server->address(), "GET", "/no/such/path", "", header).status, 401);
  }
  EXPECT_EQ(ask(server->address(), "POST", kCompletions, body, "Authorization: Bearer a-key-of-ours\r\n").status, 200);
  EXPECT_EQ(ask(server->address(), "GET", "/health").status, 200);
}

TEST(ServeConnections, WithoutAKeyOnlyThisMachineIs) {
  ServerOptions options;
  options.http.host = "0.0.0.0";
  const auto refused = Server::open(served_session(), options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kInput);
  EXPECT_NE(refused.error().message.find("--api-key"), std::string::npos) << refused.error().message;
  options.http.host = "no.such.host.invalid";
  const auto nowhere = Server::open(served_session(), options);
  ASSERT_FALSE(nowhere);
  EXPECT_NE(nowhere.error().message.find("--host"), std::string::npos) << nowhere.error().message;
}

TEST(ServeConnections, PagesOfOtherMachinesNeedAKey) {
  const auto server = serve();
  const auto status = [&](const std::string& origin) {
    return ask(server->address(), "GET", "/v1/models", "", "Origin: " + origin + "\r\n").status;
  };
  for (const char* local : {"http://localhost", "http://localhost:3000", "http://127.0.0.1:8080", "http://[::1]:1"})
    EXPECT_EQ(status(local), 200) << local;
  for (const char* other : {"http://evil.example", "http://localhost.evil.example", "https://x.org:8080", "null"})
    EXPECT_EQ(status(other), 403) << other;
}

// A page whose name its owner lets stand for 127.0.0.1 is of one origin with what it asks there.
TEST(ServeConnections, NamesOfOthersNeedAKey) {
  const auto status = [](const Server& server, const std::string& host) {
    HttpClient client(server.address());
    client.send("GET /props HTTP/1.1\r\nHost: " + host + "\r\nAuthorization: Bearer key\r\n\r\n");
    return client.read().status;
  };
  const auto server = serve();
  for (const char* local : {"localhost", "localhost:8080", "127.0.0.1", "127.0.0.1:8080", "[::1]:8080", "10.0.0.7", ""})
    EXPECT_EQ(status(*server, local), 200) << local;
  for (const char* other : {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example"})
    EXPECT_EQ(status(*server, other), 403) << other;
  ServerOptions options;
  options.api_key = "key";
  EXPECT_EQ(status(*serve(options), "our.example"), 200);
}

TEST(ServeConnections, ThereAreNoMoreThanMayBe) {
  ServerOptions options;
  options.http.connections = 2;
  const auto server = serve(options);
  HttpClient first(server->address()), second(server->address());
  first.send(http_request("GET", "/health"));
  EXPECT_EQ(first.read().status, 200);
  second.send(http_request("GET", "/health"));
  EXPECT_EQ(second.read().status, 200);
  HttpClient third(server->address());
  const HttpAnswer refused = third.read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_NE(refused.body.find("--connections"), std::string::npos);
  EXPECT_TRUE(third.ended());
  first.send(http_request("GET", "/health"));
  EXPECT_EQ(first.read().status, 200) << "those that are there stay";
}

TEST(ServeConnections, AConnectionServesOneRequestAfterAnother) {
  const auto server = serve();
  HttpClient client(server->address());
  const std::string body = R"({"prompt": "one", "max_tokens": 3, "stream": true})";
  client.send(http_request("POST", kCompletions, body) + http_request("GET", "/health") +
              http_request("POST", "/tokenize", R"({"content": 1})") + http_request("GET", "/v1/models"));
  EXPECT_TRUE(events_of(client.read().body).back().is_null());
  EXPECT_EQ(client.read().json()["status"], "ok");
  EXPECT_EQ(client.read().status, 400);
  EXPECT_EQ(client.read().json()["object"], "list");
  client.send(http_request("GET", "/health", "", "Connection: close\r\n"));
  EXPECT_EQ(client.read().status, 200);
  EXPECT_TRUE(client.ended());
}

TEST(ServeConnections, WhatAnswersHeadHasNoBody) {
  const auto server = serve();
  HttpClient client(server->address());
  client.send("HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n" +
              http_request("GET", "/health", "", "Connection: close\r\n"));
  client.read_at_least(1 << 20);
  const std::string& all = client.unread();
  EXPECT_TRUE(all.starts_with("HTTP/1.1 405 ")) << all;
  const size_t next = all.find("\r\n\r\n") + 4;
  EXPECT_EQ(all.compare(next, 13, "HTTP/1.1 200 "), 0) << all;
}

TEST(ServeConnections, ABodyIsAskedForBeforeItIsSent) {
  const auto server = serve();
  HttpClient client(server->address());
  const std::string body = R"({"prompt": "one", "max_tokens": 1})";
  const std::string whole = http_request("POST", kCompletions, body, "Expect: 100-continue\r\n");
  client.send(whole.substr(0, whole.size() - body.size()));
  EXPECT_EQ(client.read().status, 100);
  client.send(body);
  EXPECT_EQ(client.read().status, 200);
}

TEST(ServeConnections, OldClientsGetStreamsThatEndWithTheConnection) {
  const auto server = serve();
  HttpClient client(server->address());
  const std::string body = R"({"prompt": "one", "max_tokens": 3, "stream": true})";
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  const HttpAnswer answer = client.read();
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(events_of(answer.body).back().is_null());
}

}  // namespace
}  // namespace sluice::test

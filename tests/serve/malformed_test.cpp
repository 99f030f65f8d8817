// Whatever comes in place of a request gets a line that says what is wrong, and the server lives.
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "serve/http_client.h"
#include "serve/served.h"
#include "support/counted_memory.h"

namespace sluice::test {
namespace {

using nlohmann::json;

const std::string kGood = R"({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4})";

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

void expect_error(const HttpAnswer& answer, int status) {
  EXPECT_EQ(answer.status, status) << answer.body;
  const json error = answer.json();
  ASSERT_TRUE(error.is_object() && error.contains("error")) << answer.body;
  EXPECT_TRUE(error["error"]["message"].is_string());
  EXPECT_EQ(error["error"]["message"].get<std::string>().find('\n'), std::string::npos);
}

void expect_alive(const Server& server) { EXPECT_EQ(ask(server.address(), "POST", kChat, kGood).status, 200); }

TEST(ServeMalformed, BodiesThatAreNoRequest) {
  const auto server = serve();
  for (const std::string& body :
       {std::string("{"), std::string("hello"), std::string("[]"), std::string("7"), std::string("null"),
        std::string("{\"messages\": [{\"role\": \"user\", \"content\": \"\xff\"}]}"), kGood + "}",
        repeated("[", 1'000'000), "{\"a\": " + repeated("{\"a\":", 500'000), repeated("[", 65) + repeated("]", 65),
        R"({"messages": )" + repeated("[", 100) + repeated("]", 100) + "}", std::string(R"({"seed": 1e999})"),
        R"({"temperature": )" + repeated("9", 400) + "}", std::string(R"({"\ud800": 1})"), std::string(1000, '\0')})
    for (const char* path : {kChat, "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"})
      expect_error(ask(server->address(), "POST", path, body), 400);
  expect_error(ask(server->address(), "POST", kChat), 400);
  expect_alive(*server);
}

TEST(ServeMalformed, NamesOfSeveralLinesAreToldInOne) {
  const auto server = serve();
  for (const char* path : {"/v1/messages", "/v1/responses", kChat})
    for (const char* body : {R"({"max_tokens": 4, "messages": [{"role": "user", "two\nlines": "a"}]})",
                             R"({"max_tokens": 4, "input": [{"role": "user", "two\nlines": "a"}]})",
                             R"({"max_tokens": 4, "two\nlines": 7})"})
      expect_error(ask(server->address(), "POST", path, body), 400);
}

TEST(ServeMalformed, PathsAndMethodsThatThereAreNot) {
  const auto server = serve();
  expect_error(ask(server->address(), "GET", "/v0"), 404);
  expect_error(ask(server->address(), "GET", "/v1/chat"), 404);
  expect_error(ask(server->address(), "POST", "/v1/" + std::string(8000, 'x'), kGood), 404);
  const HttpAnswer get = ask(server->address(), "GET", kChat);
  expect_error(get, 405);
  EXPECT_NE(get.head.find("Allow: POST"), std::string::npos);
  expect_error(ask(server->address(), "DELETE", "/v1/models"), 405);
  expect_error(ask(server->address(), "BREW", kChat, kGood), 405);
  expect_alive(*server);
}

TEST(ServeMalformed, BytesThatAreNoHttp) {
  const auto server = serve();
  const auto answer_to = [&](const std::string& bytes) {
    HttpClient client(server->address());
    client.send(bytes);
    client.end_of_sending();
    return client.read();
  };
  const std::string head = std::string("POST ") + kChat + " HTTP/1.1\r\n";
  for (const std::string& bytes :
       {std::string("hello\r\n\r\n"), std::string("GET /health HTTP/9.9\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00"), head + "Content-Length: x\r\n\r\n",
        head + "Content-Length: -1\r\n\r\n", head + "Content-Length: 10\r\n\r\n{}",
        head + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        head + "Transfer-Encoding: chunked\r\n\r\n5\r\n{", head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
        head + "no header\r\n\r\n", head + "Host: a", head + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}"}) {
    const HttpAnswer answer = answer_to(bytes);
    EXPECT_TRUE(answer.status >= 400 && answer.status < 500) << bytes << ": " << answer.status;
  }
  expect_error(answer_to("GET /health HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n"), 431);
  expect_error(answer_to(head + "Content-Length: 100000000\r\n\r\n"), 413);
  expect_error(answer_to(head + "Transfer-Encoding: chunked\r\n\r\n" +
                         repeated("100000\r\n" + std::string(0x100000, ' ') + "\r\n", 9)),
               413);
  expect_alive(*server);
}

TEST(ServeMalformed, RandomBytesEndNothing) {
  const auto server = serve();
  std::mt19937 random(1);
  const std::string good = http_request("POST", kChat, kGood);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = good;
    for (int edits = 1 + static_cast<int>(random() % 4); edits > 0; --edits)
      bytes[random() % bytes.size()] =
          static_cast<char>(random() % 3 == 0 ? random() % 256 : "{}[]\":,\r\n 0"[random() % 11]);
    HttpClient client(server->address());
    client.send(bytes.substr(0, random() % 2 == 0 ? bytes.size() : random() % bytes.size()));
    client.end_of_sending();
    const int status = client.read().status;
    EXPECT_TRUE(status == 0 || status == 200 || (status >= 400 && status < 500)) << status << '\n' << bytes;
  }
  expect_alive(*server);
}

// A body that is no request, for one reason or another.
std::string wrong_body(std::mt19937& random) {
  const auto pick = [&](const std::vector<json>& all) { return all[random() % all.size()]; };
  json body = json::parse(kGood);
  switch (random() % 6) {
    case 0:
      return kGood.substr(0, random() % kGood.size());
    case 1: {
      const std::string name = pick({"temperature", "top_p", "top_k", "min_p", "repeat_penalty", "presence_penalty",
                                     "frequency_penalty", "n", "seed", "max_tokens", "width", "depth", "top_logprobs"});
      body[name] = pick({"x", json::array(), json::object(), true, {{"a", {1, 2}}}});
      break;
    }
    case 2: {
      const json range = pick({{"temperature", -1},
                               {"temperature", 1e308},
                               {"top_p", 0},
                               {"top_k", -1},
                               {"n", 0},
                               {"n", 1e18},
                               {"seed", 0.5},
                               {"min_p", 2},
                               {"top_logprobs", 21},
                               {"logit_bias", {{"-1", 1}}},
                               {"max_tokens", 0},
                               {"stop", {""}},
                               {"stop", {1}},
                               {"stream", "no"},
                               {"logprobs", 1},
                               {"tool_choice", "all"},
                               {"tools", "all"},
                               {"method", "x"},
                               {"width", 1 << 20},
                               {"presence_penalty", 3}});
      body[range[0].get<std::string>()] = range[1];
      break;
    }
    case 3:
      body["x" + std::to_string(random())] = static_cast<int>(random() % 3);
      break;
    case 4:
      body["messages"] = pick({7, "x", json::array(), json::array({1}), json::object(),
                               json::array({{{"role", "nobody"}, {"content", "x"}}}),
                               json::array({{{"role", "user"}, {"content", random() % 9}}}),
                               json::array({{{"role", "user"}}}), nullptr});
      break;
    default: {
      std::string text = kGood;
      text[text.find_first_of("{[:\"", random() % (text.size() - 20))] = "}]\\\x01"[random() % 4];
      return text;
    }
  }
  return body.dump();
}

TEST(ServeMalformed, ThousandsOfWrongRequestsAreEachToldSoAndLeaveNothing) {
  const auto server = serve();
  std::mt19937 random(7);
  int64_t before = 0;
  for (int round = 0; round < 3; ++round) {
    HttpClient client(server->address());
    for (int i = 0; i < 1000; ++i) {
      const std::string body = wrong_body(random);
      client.send(http_request("POST", kChat, body));
      const HttpAnswer answer = client.read();
      ASSERT_TRUE(answer.status >= 400 && answer.status < 500) << answer.status << ' ' << answer.body << '\n' << body;
      ASSERT_TRUE(answer.json().contains("error")) << answer.body;
    }
    if (round == 0) before = live_bytes();
  }
  EXPECT_LT(live_bytes() - before, 64 << 10);
  expect_alive(*server);
}

TEST(ServeMalformed, HalfARequestAndThenSilence) {
  ServerOptions options;
  options.http.idle_seconds = 2;
  const auto server = serve(options);
  std::deque<HttpClient> clients;
  for (const char* half :
       {"POST /v1/chat", "POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{\"messages\":",
        "POST /v1/chat/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"me"})
    clients.emplace_back(server->address()).send(half);
  HttpClient silent(server->address());
  for (HttpClient& client : clients) {
    expect_error(client.read(), 408);
    EXPECT_TRUE(client.ended());
  }
  EXPECT_TRUE(silent.ended()) << "who says nothing at all is told nothing";
  expect_alive(*server);
}

}  // namespace
}  // namespace sluice::test

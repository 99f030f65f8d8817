// Who is held up by what another one asks for, and by helper processes that are gone: as few as can be.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "serve/family.h"
#include "serve/http_client.h"
#include "serve/request_reader.h"
#include "serve/served.h"
#include "support/children.h"
#include "support/dear_grammar.h"

namespace sluice::test {
namespace {

using nlohmann::json;

json chat(const json& more) {
  json body = {{"messages", {{{"role", "user"}, {"content", "How is the sky?"}}}}, {"max_tokens", 4}};
  body.update(more);
  return body;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

TEST(ServeReaders, WhileAFormIsCompiledNobodyElseWaits) {
  const auto server = serve({}, whole_session());
  const json dear = chat({{"grammar", dear_grammar("a")}});
  std::atomic<double> refused_at = 0;
  auto refused = std::async(std::launch::async, [&] {
    HttpAnswer answer = post(server->address(), kChat, dear);
    refused_at = now();
    return answer;
  });
  ASSERT_TRUE(soon([&] { return server->at_work() > 0; }));
  // Three clients that don't wait for what they asked for, and one that does.
  for (const char* letter : {"b", "c", "d"})
    HttpClient(server->address()).send(http_request("POST", kChat, chat({{"grammar", dear_grammar(letter)}}).dump()));
  std::atomic<double> answered_at = 0;
  auto answered = std::async(std::launch::async, [&] {
    HttpAnswer answer = post(server->address(), kChat, chat({{"regex", "[ab]{3}"}}));
    answered_at = now();
    return answer;
  });
  for (const char* page : {"/health", "/metrics", "/slots", "/props", "/v1/models"})
    EXPECT_EQ(ask(server->address(), "GET", page).status, 200) << page;
  EXPECT_EQ(post(server->address(), "/tokenize", {{"content", "hello"}}).status, 200);
  EXPECT_EQ(post(server->address(), kChat, chat({{"response_format", {{"type", "text"}}}})).status, 200);
  EXPECT_EQ(post(server->address(), kCompletions, {{"prompt", "one"}, {"max_tokens", 4}}).status, 200);
  EXPECT_EQ(refused_at.load(), 0.0) << "they have waited, or the grammar is read too fast to hold up anybody";
  const HttpAnswer why = refused.get();
  EXPECT_EQ(why.status, 400) << why.body;
  EXPECT_NE(why.json()["error"]["message"].get<std::string>().find("it took more than"), std::string::npos) << why.body;
  EXPECT_EQ(answered.get().status, 200);
  EXPECT_LT(answered_at - refused_at, 10.0) << "what was asked by who has gone is not read";
  const double again = now();
  EXPECT_EQ(post(server->address(), kChat, dear).json()["error"], why.json()["error"]);
  EXPECT_LT(now() - again, 2.0) << "it is known";
}

TEST(ServeReaders, WhatTakesLongIsToldFromTheBody) {
  const auto effort = [](const char* more) {
    json body = json::parse(R"({"messages": [], "temperature": 1, "text": {"verbosity": "medium"}})");
    body.update(json::parse(more));
    return effort_of(body);
  };
  for (const char* little :
       {"{}", R"({"response_format": {"type": "text"}})", R"({"grammar": null})", R"({"tool_choice": "none"})",
        R"({"text": {"format": {"type": "text"}}})", R"({"tool_choice": {"type": "auto"}})", R"({"text": 7})"})
    EXPECT_EQ(effort(little), Effort::kLittle) << little;
  EXPECT_EQ(effort(R"({"tools": [{"type": "function"}], "tool_choice": "auto"})"), Effort::kMuch);
  for (const char* form :
       {R"({"response_format": {"type": "json_object"}})", R"({"response_format": 7})", R"({"grammar": "x"})",
        R"({"regex": "x"})", R"({"json_schema": {}})", R"({"text": {"format": {"type": "json_schema"}}})",
        R"({"tools": [], "tool_choice": "required"})", R"({"tool_choice": {"type": "function", "name": "x"}})",
        R"({"tool_choice": {"type": "any"}})"})
    EXPECT_EQ(effort(form), Effort::kForm) << form;
}

TEST(ServeReaders, WithoutHelperProcessesItIsNobodysFault) {
  const auto before = children();
  const Session session = open_whole(served_model());
  const auto server = serve({}, session);
  EXPECT_EQ(post(server->address(), kChat, chat({{"regex", "[ab]"}})).status, 200);
  stop_children_but(before);
  const json text = {{"prompt", "one"}, {"max_tokens", 4}}, formed = {{"prompt", "one"}, {"regex", "[cd]"}};
  for (const auto& [path, body] :
       {std::pair{kChat, chat({{"regex", "[cd]"}})}, {kChat, chat(json::object())}, {kCompletions, formed}}) {
    const HttpAnswer answer = post(server->address(), path, body);
    EXPECT_EQ(answer.status, 503) << answer.body;
    EXPECT_EQ(answer.json()["error"]["code"], "reader_unavailable");
    EXPECT_EQ(answer.json()["error"]["type"], "server_error");
  }
  EXPECT_EQ(post(server->address(), kCompletions, text).status, 200);
}

}  // namespace
}  // namespace sluice::test

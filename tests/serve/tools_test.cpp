// Reasoning and calls of tools, whole and in pieces; what is none stays content.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "serve/completion_form.h"
#include "serve/family.h"
#include "serve/http_client.h"
#include "serve/json_body.h"
#include "serve/request_reader.h"
#include "serve/served.h"
#include "serve/teller.h"

namespace sluice::test {
namespace {

using nlohmann::json;

const json kTools = json::parse(R"([{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a place", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}}, "required": ["city"]}}}])");
const json kMessages = json::parse(R"([{"role": "user", "content": "What is the weather in Paris?"}])");

class ServeTools : public testing::Test {
 protected:
  void SetUp() override {
    if (family_template().empty()) GTEST_SKIP() << "tools/setup installs the templates";
  }

  static std::unique_ptr<AnswerForm> form() { return std::make_unique<CompletionForm>(Api::kChat, "m", false); }

  json whole(const std::string& text, Finish finish = Finish::kStop) {
    return json::parse(
        told(form(), kTools, {text}, /*stream=*/false, {.finish = finish, .usage = {}, .error = {}}))["choices"][0];
  }

  // In pieces of any length, told late, put together again as clients do.
  json streamed(const std::string& text, uint32_t seed, Finish finish = Finish::kStop) {
    std::mt19937 random(seed);
    const auto exchange = std::make_shared<Kept>();
    boost::asio::thread_pool threads(1);
    Teller teller(form(), {.stream = true}, family_session().tokenizer(), exchange, family_session().answers(),
                  family_format(kTools));
    const auto late = std::make_shared<LateTeller>(std::move(teller), threads);
    late->take({});
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + random() % 12;
      late->take({.text = text.substr(at, n)});
      at += n;
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    late->take({.end = AnswerEnd{.finish = finish, .usage = {}, .error = {}}});
    const std::string events = exchange->wait().body;
    threads.join();
    return put_together(events_of(events));
  }

  static json put_together(const std::vector<json>& events) {
    json message = {{"content", ""}}, choice;
    for (const json& event : events) {
      if (event.is_null() || event["choices"].empty()) continue;
      const json& one = event["choices"][0];
      if (!one["finish_reason"].is_null()) choice["finish_reason"] = one["finish_reason"];
      for (const auto& [name, more] : one["delta"].items()) {
        if (more.is_null()) continue;
        if (name == "content" || name == "reasoning_content")
          message[name] = message.value(name, "") + more.get<std::string>();
        else if (name == "role")
          message[name] = more;
        else if (name == "tool_calls")
          for (const json& call : more) add(message["tool_calls"], call);
      }
    }
    choice["message"] = message;
    return choice;
  }

  static void add(json& calls, const json& more) {
    const auto index = more["index"].get<size_t>();
    if (index >= calls.size()) {
      EXPECT_EQ(index, calls.size());
      json first = more;
      first.erase("index");
      EXPECT_TRUE(first.contains("id") && first.contains("type") && first["function"].contains("name")) << more;
      calls.push_back(first);
    } else {
      EXPECT_FALSE(more.contains("id") || more["function"].contains("name")) << more;
      json& arguments = calls[index]["function"]["arguments"];
      arguments = arguments.get<std::string>() + more["function"]["arguments"].get<std::string>();
    }
  }
};

const std::string kCall =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>";

TEST_F(ServeTools, ReasoningContentAndCallsAreToldApart) {
  const json choice = whole("<think>\nRain?\n</think>\n\nLet me see. " + kCall);
  const json& message = choice["message"];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_NE(message["reasoning_content"].get<std::string>().find("Rain?"), std::string::npos);
  EXPECT_NE(message["content"].get<std::string>().find("Let me see."), std::string::npos);
  ASSERT_EQ(message["tool_calls"].size(), 1u) << choice;
  EXPECT_EQ(message["tool_calls"][0]["type"], "function");
  EXPECT_TRUE(message["tool_calls"][0]["id"].get<std::string>().starts_with("call_"));
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "get_weather");
  EXPECT_EQ(json::parse(message["tool_calls"][0]["function"]["arguments"].get<std::string>()),
            json({{"city", "Paris"}}));
}

TEST_F(ServeTools, PiecesComeToTheWholeMessage) {
  const std::vector<std::string> texts = {"<think>\nRain?\n</think>\n\nIt rains.",
                                          "<think>\nRain?\n</think>\n\n" + kCall,
                                          "Let me see. " + kCall + "\n" + kCall,
                                          "It rains, grüße <b>.",
                                          "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"ci",
                                          "<tool_call>\nno call at all</tool_call> and more",
                                          "<think>\nfor ever",
                                          "<tool_ca",
                                          ""};
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(texts[i]);
    json wanted = whole(texts[i]);
    wanted["message"].erase("refusal");
    if (wanted["message"]["content"].is_null()) wanted["message"]["content"] = "";
    for (uint32_t seed = 0; seed < 3; ++seed) {
      json pieces = streamed(texts[i], seed);
      EXPECT_EQ(pieces["finish_reason"], wanted["finish_reason"]);
      json said = pieces["message"], all = wanted["message"];
      for (json* message : {&said, &all})
        if (message->contains("tool_calls"))
          for (json& call : (*message)["tool_calls"]) call.erase("id");  // drawn anew
      EXPECT_EQ(said, all);
    }
  }
}

TEST_F(ServeTools, WhatIsNoCallIsContentAsItStands) {
  const std::string text = "<tool_call>\nno call at all";
  const json choice = whole(text);
  EXPECT_EQ(choice["message"]["content"], text);
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(whole("It ra", Finish::kLength)["finish_reason"], "length");
}

TEST_F(ServeTools, RequestsWithToolsAreAnswered) {
  const auto server = serve({}, family_session());
  json body = {{"messages", kMessages}, {"tools", kTools}, {"max_tokens", 12}, {"temperature", 1.0}, {"seed", 4}};
  const HttpAnswer answer = post(server->address(), kChat, body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json first = answer.json();
  body["tool_choice"] = "none";
  EXPECT_EQ(post(server->address(), kChat, body).status, 200);
  body.erase("tools");
  const json without = post(server->address(), kChat, body).json();
  EXPECT_GT(first["usage"]["prompt_tokens"], without["usage"]["prompt_tokens"]) << "they are told to the model";
  body["messages"] = json::parse(R"([{"role": "user", "content": "Weather?"},
      {"role": "assistant", "content": null, "reasoning_content": "Hm.", "tool_calls": [{"id": "call_1", "type": "function",
        "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}}]},
      {"role": "tool", "tool_call_id": "call_1", "content": "It rains."}])");
  body["stream"] = true;
  const HttpAnswer again = post(server->address(), kChat, body);
  ASSERT_EQ(again.status, 200) << again.body;
  EXPECT_TRUE(events_of(again.body).back().is_null());
}

// Models are trained on tools as people write them, and the prompt's cells are shared by its bytes.
TEST_F(ServeTools, TheirMembersReachTheTemplateInTheirOrder) {
  const auto body = parse_body(R"({"messages": [{"role": "user", "content": "Weather?"}], "max_tokens": 1, "tools": [
      {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties":
       {"zone": {"type": "string"}, "city": {"type": "string"}, "at": {"minimum": 1, "type": "integer"}},
       "required": ["zone"]}}}]})");
  const auto asked = read_chat(family_session(), {}, body.value());
  ASSERT_TRUE(asked) << asked.error().message;
  const std::string prompt = family_session().tokenizer().decode(asked->spec.prompt, /*special=*/true);
  size_t at = 0;
  for (const char* name : {"\"parameters\"", "\"properties\"", "\"zone\"", "\"city\"", "\"at\"", "\"minimum\"",
                           "\"type\"", "\"required\""}) {
    at = prompt.find(name, at);
    ASSERT_NE(at, prompt.npos) << name << " in " << prompt;
  }
}

TEST_F(ServeTools, ToolsThatAreNoneAreRefused) {
  const auto server = serve({}, family_session());
  const auto refused = [&](const json& more, const std::string& param) {
    json body = {{"messages", kMessages}, {"max_tokens", 1}};
    body.update(more);
    const HttpAnswer answer = post(server->address(), kChat, body);
    EXPECT_EQ(answer.status, 400) << body;
    EXPECT_TRUE(answer.json()["error"]["param"].get<std::string>().starts_with(param)) << answer.body;
  };
  json broken = kTools;
  for (const json& wrong : {json("x"), json(7), json::array({1}), json::array({json::object()}),
                            json::array({{{"type", "function"}, {"function", {{"name", 7}}}}}),
                            json::array({{{"type", "function"}, {"function", {{"name", "x"}, {"parameters", 1}}}}}),
                            json(std::vector<json>(129, kTools[0]))})
    refused({{"tools", wrong}}, "tools");
  refused({{"tool_choice", "required"}}, "tool_choice");
  refused({{"tools", kTools}, {"response_format", {{"type", "json_object"}}}}, "response_format");
  refused({{"tools", kTools}, {"tool_choice", {{"type", "function"}}}}, "tool_choice");
  refused({{"tools", kTools}, {"tool_choice", {{"type", "function"}, {"function", {{"name", "x"}}}}}}, "tool_choice");
  refused({{"tools", kTools}, {"parallel_tool_calls", 1}}, "parallel_tool_calls");
  const auto message = [](const char* text) { return json{{"messages", json::array({json::parse(text)})}}; };
  for (const char* wrong :
       {R"({"role": "tool", "content": "x"})", R"({"role": "user", "content": "x", "tool_call_id": "1"})",
        R"({"role": "user", "content": "x", "tool_calls": [{"function": {"name": "a", "arguments": "{}"}}]})",
        R"({"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": {}}}]})",
        R"({"role": "assistant", "tool_calls": [7]})", R"({"role": "assistant", "tool_calls": "x"})",
        R"({"role": "assistant", "content": null})", R"({"role": "assistant", "content": "x", "reasoning_content": 1})",
        R"({"role": "user", "content": "x", "reasoning_content": "y"})"})
    refused(message(wrong), "messages");
}

TEST(ServeToolsElsewhere, WhereAnswersAreNotReadToolsAreRefused) {
  const auto server = serve();
  const HttpAnswer answer = post(server->address(), kChat, {{"messages", kMessages}, {"tools", kTools}});
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.json()["error"]["param"], "tools");
}

}  // namespace
}  // namespace sluice::test

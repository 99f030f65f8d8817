// POST /v1/messages: the same answers as chats get, in the form of Anthropic's API, whole and as events.
#include <gtest/gtest.h>

#include "serve/family.h"
#include "serve/http_client.h"
#include "serve/messages_form.h"
#include "serve/served.h"

namespace sluice::test {
namespace {

using nlohmann::json;

constexpr const char *kMessages = "/v1/messages", *kCount = "/v1/messages/count_tokens";

const json kTools = json::parse(R"([{"name": "get_weather", "description": "The weather of a place", "input_schema":
    {"type": "object", "properties": {"city": {"type": "string"}}}}])");

json as_chats_have_it(const json& tools) {
  json all = json::array();
  for (const json& tool : tools)
    all.push_back(
        {{"type", "function"},
         {"function",
          {{"name", tool["name"]}, {"description", tool["description"]}, {"parameters", tool["input_schema"]}}}});
  return all;
}

std::string text_of(const json& message) {
  std::string text;
  for (const json& block : message["content"])
    if (block["type"] == "text") text += block["text"].get<std::string>();
  return text;
}

int n_input(const json& usage) {
  return usage["input_tokens"].get<int>() + usage["cache_read_input_tokens"].get<int>() +
         usage["cache_creation_input_tokens"].get<int>();
}

void expect_error(const HttpAnswer& answer, int status, const std::string& type) {
  EXPECT_EQ(answer.status, status) << answer.body;
  const json error = answer.json();
  ASSERT_TRUE(error.is_object()) << answer.body;
  EXPECT_EQ(error["type"], "error");
  EXPECT_EQ(error["error"]["type"], type);
  EXPECT_EQ(error["error"]["message"].get<std::string>().find('\n'), std::string::npos);
}

// What the events of a stream come to, with checks that they are in their order.
json put_together(const std::vector<json>& events) {
  json message = events.front()["message"];
  bool open = false;
  EXPECT_EQ(events.front()["type"], "message_start");
  EXPECT_EQ(events[1]["type"], "ping");
  EXPECT_EQ(events.back()["type"], "message_stop");
  for (size_t i = 2; i + 1 < events.size(); ++i) {
    const json& event = events[i];
    const std::string type = event["type"];
    if (type == "message_delta") {
      EXPECT_EQ(i + 2, events.size());
      message.update(event["delta"]);
      message["usage"].update(event["usage"]);
      continue;
    }
    EXPECT_EQ(open, type != "content_block_start");
    open = type != "content_block_stop";
    json& content = message["content"];
    if (type == "content_block_start") content.push_back(event["content_block"]);
    EXPECT_EQ(event["index"], content.size() - 1);
    if (type != "content_block_delta") continue;
    for (const auto& [name, more] : event["delta"].items()) {
      if (name == "type") continue;
      json& text = content.back()[name];
      text = (text.is_string() ? text.get<std::string>() : "") + more.get<std::string>();
    }
  }
  EXPECT_FALSE(open);
  for (json& block : message["content"]) {
    if (block["type"] != "tool_use") continue;
    block["input"] = json::parse(block["partial_json"].get<std::string>());
    block.erase("partial_json");
  }
  return message;
}

// Without what every message draws anew, and what depends on the time.
json settled(json message) {
  for (const char* own : {"id", "usage"}) message.erase(own);
  for (json& block : message["content"]) block.erase("id");
  return message;
}

TEST(ServeMessages, AnswersAreThoseThatChatsGet) {
  const auto server = serve();
  for (const json& shape :
       {json{{"temperature", 0}}, json{{"temperature", 1.0}, {"seed", 7}, {"top_k", 30}, {"method", "specpipe"}}}) {
    json chat = shape, body = shape;
    chat["messages"] = json::parse(R"([{"role": "system", "content": "be"}, {"role": "user", "content": "hello"}])");
    body["system"] = "be";
    body["messages"] = json::parse(R"([{"role": "user", "content": "hello"}])");
    for (json* one : {&chat, &body}) one->update({{"max_tokens", 40}, {"ignore_eos", true}});
    const HttpAnswer answer = post(server->address(), kMessages, body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json message = answer.json();
    EXPECT_EQ(text_of(message), expected_of(chat).text);
    EXPECT_EQ(message["type"], "message");
    EXPECT_EQ(message["role"], "assistant");
    EXPECT_EQ(message["stop_reason"], "max_tokens");
    EXPECT_TRUE(message["stop_sequence"].is_null());
    EXPECT_EQ(message["usage"]["output_tokens"], 40);
    EXPECT_EQ(n_input(message["usage"]), post(server->address(), kChat, chat).json()["usage"]["prompt_tokens"]);
    json count = {{"system", body["system"]}, {"messages", body["messages"]}};
    EXPECT_EQ(post(server->address(), kCount, count).json(), (json{{"input_tokens", n_input(message["usage"])}}));
    body["stream"] = true;
    const auto events = events_of(post(server->address(), kMessages, body).body);
    EXPECT_EQ(n_input(events.front()["message"]["usage"]), n_input(message["usage"]));
    const json streamed = put_together(events);
    EXPECT_EQ(settled(streamed), settled(message));
    EXPECT_EQ(streamed["usage"]["output_tokens"], 40);
    EXPECT_EQ(n_input(streamed["usage"]), n_input(message["usage"]));
  }
}

TEST(ServeMessages, TheStopSequenceThatEndsAnAnswerIsTold) {
  const auto server = serve();
  json body = json::parse(R"({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 40, "ignore_eos": true,
      "temperature": 1.0, "seed": 3})");
  const std::string text = text_of(post(server->address(), kMessages, body).json());
  size_t begin = text.size() / 2, end = begin;
  while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
  for (end = begin + 1; end < text.size() && (text[end] & 0xC0) == 0x80;) ++end;
  const std::string stop = text.substr(begin, end - begin);
  body["stop_sequences"] = {"nowhere to be found", stop};
  const json message = post(server->address(), kMessages, body).json();
  EXPECT_EQ(message["stop_reason"], "stop_sequence");
  EXPECT_EQ(message["stop_sequence"], stop);
  EXPECT_EQ(text_of(message), text.substr(0, text.find(stop)));
  body["stream"] = true;
  EXPECT_EQ(settled(put_together(events_of(post(server->address(), kMessages, body).body))), settled(message));
}

TEST(ServeMessages, BlocksAreTheMessagesThatTheyStandFor) {
  if (family_template().empty()) GTEST_SKIP() << "tools/setup installs the templates";
  const auto server = serve({}, family_session());
  const auto expect_same = [&](const char* system, const char* given, const char* messages) {
    json body = {{"messages", json::parse(given)}, {"max_tokens", 4}, {"tools", kTools}, {"seed", 1}};
    if (*system != '\0') body["system"] = json::parse(system);
    const json chat = {
        {"messages", json::parse(messages)}, {"max_tokens", 4}, {"tools", as_chats_have_it(kTools)}, {"seed", 1}};
    const HttpAnswer answer = post(server->address(), kMessages, body), same = post(server->address(), kChat, chat);
    ASSERT_EQ(answer.status, 200) << answer.body;
    ASSERT_EQ(same.status, 200) << same.body;
    EXPECT_EQ(n_input(answer.json()["usage"]), same.json()["usage"]["prompt_tokens"]) << given;
    body.erase("max_tokens");
    EXPECT_EQ(post(server->address(), kCount, body).json()["input_tokens"], same.json()["usage"]["prompt_tokens"]);
  };
  expect_same(R"([{"type": "text", "text": "Be "}, {"type": "text", "text": "brief", "cache_control": {"type":
                  "ephemeral"}}])",
              R"([{"role": "user", "content": [{"type": "text", "text": "Wea"}, {"type": "text", "text": "ther?"}]}])",
              R"([{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Weather?"}])");
  expect_same("", R"([{"role": "user", "content": "Weather?"},
      {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text":
       "I look."}, {"type": "tool_use", "id": "1", "name": "get_weather", "input": {"city": "Rome"}}, {"type": "tool_use",
       "id": "2", "name": "get_weather", "input": {}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "It rains."}, {"type":
       "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "So so."}], "is_error": false},
       {"type": "text", "text": "And?"}]}])",
              R"([{"role": "user", "content": "Weather?"},
      {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [
       {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\":\"Rome\"}"}},
       {"id": "2", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "It rains."},
      {"role": "tool", "tool_call_id": "2", "content": "So so."}, {"role": "user", "content": "And?"}])");
}

TEST(ServeMessages, AModelThatReasonsMayBeToldNotTo) {
  if (family_template().empty()) GTEST_SKIP() << "tools/setup installs the templates";
  const auto server = serve({}, family_session());
  json body = json::parse(R"({"messages": [{"role": "user", "content": "hello"}]})");
  const int plain = post(server->address(), kCount, body).json()["input_tokens"];
  body["thinking"] = {{"type", "adaptive"}};
  EXPECT_EQ(post(server->address(), kCount, body).json()["input_tokens"], plain);
  body["thinking"] = {{"type", "disabled"}};
  EXPECT_GT(post(server->address(), kCount, body).json()["input_tokens"], plain);
}

TEST(ServeMessages, WhatIsNotSupportedIsRefusedByName) {
  const auto server = serve();
  const auto block = [](const char* role, const char* text) {
    return json::array({{{"role", role}, {"content", json::array({json::parse(text)})}}});
  };
  const std::vector<std::pair<std::string, json>> wrong = {
      {"thinking.budget_tokens", 2000},
      {"output_config.effort", "low"},
      {"output_config.format", {{"type", "json_schema"}}},
      {"container", "x"},
      {"mcp_servers", {"x"}},
      {"speed", "fast"},
      {"tool_choice", {{"type", "any"}}},
      {"tool_choice", {{"type", "tool"}, {"name", "f"}}},
      {"tool_choice", "auto"},
      {"tools", {{{"type", "bash_20250124"}, {"name", "bash"}}}},
      {"tools", {{{"name", "f"}}}},
      {"stop_sequences", json::array({""})},
      {"max_tokens", 0},
      {"max_completion_tokens", 5},
      {"stop", "x"},
      {"n", 2},
      {"temperature", -1},
      {"system", 7},
      {"messages", nullptr},
      {"messages", json::array()},
      {"messages", {{{"role", "tool"}, {"content", "x"}}}},
      {"messages", {{{"role", "user"}}}},
      {"messages", {{{"role", "user"}, {"content", json::array()}}}},
      {"messages", {{{"role", "user"}, {"content", "x"}, {"name", "me"}}}},
      {"messages", {{{"role", "assistant"}, {"content", "The answer is"}}}},
      {"messages", block("user", R"({"type": "image", "source": {}})")},
      {"messages", block("user", R"({"type": "tool_use", "id": "1", "name": "f", "input": {}})")},
      {"messages", block("user", R"({"type": "tool_result", "content": "x"})")},
      {"messages", block("user", R"({"type": "text", "text": 7})")},
      {"messages", block("assistant", R"({"type": "tool_use", "id": "1", "name": "f", "input": "{}"})")},
      {"messages", block("assistant", R"({"type": "redacted_thinking", "data": "x"})")}};
  for (const auto& [name, value] : wrong) {
    json body = json::parse(R"({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1})");
    const size_t dot = name.find('.');
    (dot == name.npos ? body[name] : body[name.substr(0, dot)][name.substr(dot + 1)]) = value;
    const HttpAnswer answer = post(server->address(), kMessages, body);
    expect_error(answer, 400, "invalid_request_error");
    EXPECT_TRUE(answer.json()["error"]["message"].get<std::string>().starts_with(name)) << answer.body;
  }
  const json taken = json::parse(R"({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1, "metadata":
      {"user_id": "me"}, "service_tier": "auto", "thinking": {"type": "disabled"}, "tools": [], "stop_sequences": [],
      "tool_choice": {"type": "auto", "disable_parallel_tool_use": true}, "mcp_servers": [], "container": null})");
  EXPECT_EQ(post(server->address(), kMessages, taken).status, 200);
}

TEST(ServeMessages, ErrorsHaveTheFormOfThatApi) {
  ServerOptions options;
  options.api_key = "a-key-of-ours";
  const auto server = serve(options);
  const std::string key = "x-api-key: a-key-of-ours\r\n",
                    body = R"({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1})";
  for (const char* wrong : {"", "x-api-key: another\r\n", "x-api-key: Bearer a-key-of-ours\r\n", "x-api-key: \r\n"})
    expect_error(ask(server->address(), "POST", kMessages, body, wrong), 401, "authentication_error");
  EXPECT_EQ(ask(server->address(), "POST", kMessages, body, key).status, 200);
  EXPECT_EQ(ask(server->address(), "POST", kMessages, body, "Authorization: Bearer a-key-of-ours\r\n").status, 200);
  EXPECT_EQ(ask(server->address(), "GET", "/v1/models", "", key).status, 200);
  expect_error(ask(server->address(), "POST", kMessages, "{", key), 400, "invalid_request_error");
  expect_error(ask(server->address(), "GET", kMessages, "", key), 405, "invalid_request_error");
  expect_error(ask(server->address(), "POST", "/v1/messages/batches", body, key), 404, "not_found_error");
  const std::string other = R"({"messages": [{"role": "user", "content": "x"}], "model": "another"})";
  expect_error(ask(server->address(), "POST", kMessages, other, key), 404, "not_found_error");
  HttpClient client(server->address());
  client.send(std::string("POST ") + kMessages + " HTTP/1.1\r\n" + key + "Content-Length: 100000000\r\n\r\n");
  expect_error(client.read(), 413, "request_too_large");
}

std::unique_ptr<AnswerForm> form() { return std::make_unique<MessagesForm>("m", 9, std::vector<std::string>{"STOP"}); }

TEST(ServeMessages, ReasoningTextAndCallsAreBlocks) {
  if (family_template().empty()) GTEST_SKIP() << "tools/setup installs the templates";
  const std::vector<std::string> pieces = {"<think>\nRa",
                                           "in?\n</think>\n\nLet me ",
                                           "see. ",
                                           "<tool_call>\n{\"name\": \"get_weather\", \"argu",
                                           "ments\": {\"city\": \"Pa",
                                           "ris\"}}\n</tool_call>"};
  const json tools = as_chats_have_it(kTools);
  const json whole = json::parse(told(form(), tools, pieces, /*stream=*/false));
  ASSERT_EQ(whole["content"].size(), 3u) << whole;
  EXPECT_EQ(whole["stop_reason"], "tool_use");
  EXPECT_EQ(whole["content"][0]["type"], "thinking");
  EXPECT_NE(whole["content"][0]["thinking"].get<std::string>().find("Rain?"), std::string::npos);
  EXPECT_NE(whole["content"][1]["text"].get<std::string>().find("Let me see."), std::string::npos);
  EXPECT_EQ(whole["content"][2]["name"], "get_weather");
  EXPECT_EQ(whole["content"][2]["input"], json({{"city", "Paris"}}));
  EXPECT_EQ(settled(put_together(events_of(told(form(), tools, pieces, /*stream=*/true)))), settled(whole));
}

TEST(ServeMessages, ReasonsWhyAnAnswerEnds) {
  if (family_template().empty()) GTEST_SKIP() << "tools/setup installs the templates";
  const auto reason = [](Finish finish, const std::string& stop, const std::string& text) {
    const AnswerEnd end{.finish = finish, .usage = {}, .error = {}, .stop = stop};
    const json whole = json::parse(told(form(), as_chats_have_it(kTools), {text}, /*stream=*/false, end));
    return whole["stop_reason"].get<std::string>();
  };
  const std::string call =
      "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>";
  EXPECT_EQ(reason(Finish::kStop, "", "It rains."), "end_turn");
  EXPECT_EQ(reason(Finish::kStop, "<|of the family|>", "It rains."), "end_turn");
  EXPECT_EQ(reason(Finish::kStop, "STOP", "It rains."), "stop_sequence");
  EXPECT_EQ(reason(Finish::kLength, "", "It rai"), "max_tokens");
  EXPECT_EQ(reason(Finish::kStop, "", call), "tool_use");
}

TEST(ServeMessages, ACallThatIsCutOffHasNoInput) {
  if (family_template().empty()) GTEST_SKIP() << "tools/setup installs the templates";
  const AnswerEnd end{.finish = Finish::kLength, .usage = {}, .error = {}};
  const std::string cut = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Ro";
  const json whole = json::parse(told(form(), as_chats_have_it(kTools), {cut}, /*stream=*/false, end));
  EXPECT_EQ(whole["stop_reason"], "max_tokens");
  for (const json& block : whole["content"]) EXPECT_TRUE(block["type"] == "text" || block["input"] == json::object());
}

TEST(ServeMessages, WhatFailsInTheMiddleIsAnEventOfAnError) {
  if (family_template().empty()) GTEST_SKIP() << "tools/setup installs the templates";
  const AnswerEnd end{.finish = Finish::kFailed,
                      .usage = {},
                      .error = {.status = 503, .message = "hosts are lost", .param = "", .code = "engine_unavailable"}};
  const auto events = events_of(told(form(), json::array(), {"<think>", "no"}, /*stream=*/true, end));
  EXPECT_EQ(events.back(), json::parse(R"({"type": "error", "error": {"type": "overloaded_error", "message":
      "hosts are lost"}})"));
}

}  // namespace
}  // namespace sluice::test

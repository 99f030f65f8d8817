// POST /v1/responses: the same answers as chats get, in the form of that API, whole and as events.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "serve/family.h"
#include "serve/http_client.h"
#include "serve/responses_form.h"
#include "serve/served.h"

namespace sluice::test {
namespace {

using nlohmann::json;

constexpr const char* kResponses = "/v1/responses";

const json kFlatTools = json::parse(R"([{"type": "function", "name": "get_weather", "description":
    "The weather of a place", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": false}])");

json as_chats_have_it(const json& flat) {
  json tools = json::array();
  for (json tool : flat) {
    tool.erase("type");
    tool.erase("strict");
    tools.push_back({{"type", "function"}, {"function", tool}});
  }
  return tools;
}

std::string output_text(const json& response) {
  std::string text;
  for (const json& item : response["output"])
    if (item["type"] == "message") text += item["content"][0]["text"].get<std::string>();
  return text;
}

// Without what every response draws anew, and what depends on the time.
json settled(json response) {
  for (const char* own : {"id", "created_at", "usage"}) response.erase(own);
  for (json& item : response["output"]) item.erase("id");
  for (json& item : response["output"]) item.erase("call_id");
  return response;
}

TEST(ServeResponses, AnswersAreThoseThatChatsGet) {
  const auto server = serve();
  for (const json& shape :
       {json{{"temperature", 0}}, json{{"temperature", 1.0}, {"seed", 7}, {"top_p", 0.9}, {"method", "specpipe"}}}) {
    json chat = shape, body = shape;
    chat["messages"] = json::parse(R"([{"role": "system", "content": "be"}, {"role": "user", "content": "hello"}])");
    chat["ignore_eos"] = body["ignore_eos"] = true;
    chat["max_tokens"] = body["max_output_tokens"] = 40;
    body["instructions"] = "be";
    body["input"] = "hello";
    const std::string text = expected_of(chat).text;
    const HttpAnswer answer = post(server->address(), kResponses, body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    const json response = answer.json();
    EXPECT_EQ(output_text(response), text);
    EXPECT_EQ(response["object"], "response");
    EXPECT_EQ(response["status"], "incomplete");
    EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
    EXPECT_EQ(response["instructions"], "be");
    EXPECT_EQ(response["max_output_tokens"], 40);
    EXPECT_EQ(response["store"], false);
    const json& usage = response["usage"];
    EXPECT_EQ(usage["output_tokens"], 40);
    EXPECT_EQ(usage["total_tokens"], 40 + usage["input_tokens"].get<int>());
    EXPECT_EQ(post(server->address(), kChat, chat).json()["usage"]["prompt_tokens"], usage["input_tokens"]);
    body["stream"] = true;
    const auto events = events_of(post(server->address(), kResponses, body).body);
    EXPECT_EQ(settled(events.back()["response"]), settled(response));
  }
}

// What the deltas come to, with checks that events are in their order.
json put_together(const std::vector<json>& events) {
  json output = json::array();
  for (size_t i = 0; i < events.size(); ++i) {
    const json& event = events[i];
    const std::string type = event["type"];
    EXPECT_EQ(event["sequence_number"], i);
    if (type == "response.output_item.added") {
      EXPECT_EQ(event["output_index"], output.size());
      EXPECT_EQ(event["item"]["status"], "in_progress");
      output.push_back(event["item"]);
    }
    if (!event.contains("item_id")) continue;
    json& item = output.back();
    EXPECT_EQ(event["item_id"], item["id"]);
    EXPECT_EQ(event["output_index"], output.size() - 1);
    if (type == "response.content_part.added") item["content"].push_back(event["part"]);
    const bool arguments = type.starts_with("response.function_call_arguments");
    json* const text = arguments                  ? &item["arguments"]
                       : type.ends_with(".delta") ? &item["content"][0]["text"]
                                                  : nullptr;
    if (type.ends_with(".delta")) *text = text->get<std::string>() + event["delta"].get<std::string>();
    if (type.ends_with("arguments.done")) {
      EXPECT_EQ(event["arguments"], item["arguments"]);
    } else if (type.ends_with("text.done")) {
      EXPECT_EQ(event["text"], item["content"][0]["text"]);
    } else if (type == "response.content_part.done") {
      EXPECT_EQ(event["part"], item["content"][0]);
    }
  }
  return output;
}

std::vector<std::string> types_of(const std::vector<json>& events) {
  std::vector<std::string> types;
  for (const json& event : events)
    if (const std::string type = event["type"]; types.empty() || types.back() != type) types.push_back(type);
  return types;
}

TEST(ServeResponses, EventsOfAStreamComeInTheirOrder) {
  const auto server = serve();
  const json body = {{"input", "hello"}, {"max_output_tokens", 30}, {"ignore_eos", true}, {"stream", true}};
  const HttpAnswer answer = post(server->address(), kResponses, body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const auto events = events_of(answer.body);
  const std::vector<std::string> types = {"response.created",           "response.in_progress",
                                          "response.output_item.added", "response.content_part.added",
                                          "response.output_text.delta", "response.output_text.done",
                                          "response.content_part.done", "response.output_item.done",
                                          "response.incomplete"};
  EXPECT_EQ(types_of(events), types);
  std::set<std::string> ids;
  for (const json& event : events)
    if (event.contains("response")) ids.insert(event["response"]["id"].get<std::string>());
  EXPECT_EQ(ids.size(), 1u);
  json output = put_together(events);
  output[0]["status"] = "incomplete";
  EXPECT_EQ(events.back()["response"]["output"], output);
  EXPECT_EQ(events[events.size() - 2]["item"], output[0]);
  EXPECT_TRUE(events.front()["response"]["usage"].is_null());
  EXPECT_EQ(events.back()["response"]["usage"]["output_tokens"], 30);
}

TEST(ServeResponses, ItemsAreTheMessagesThatTheyStandFor) {
  if (family_template().empty()) GTEST_SKIP() << "tools/setup installs the templates";
  const auto server = serve({}, family_session());
  const auto expect_same = [&](const char* input, const char* messages) {
    json body = {{"input", json::parse(input)}, {"max_output_tokens", 4}, {"tools", kFlatTools}, {"seed", 1}};
    json chat = {{"messages", json::parse(messages)}, {"max_tokens", 4}, {"seed", 1}};
    chat["tools"] = as_chats_have_it(kFlatTools);
    const HttpAnswer answer = post(server->address(), kResponses, body), same = post(server->address(), kChat, chat);
    ASSERT_EQ(answer.status, 200) << answer.body;
    ASSERT_EQ(same.status, 200) << same.body;
    EXPECT_EQ(answer.json()["usage"]["input_tokens"], same.json()["usage"]["prompt_tokens"]) << input;
  };
  expect_same(R"([{"role": "user", "content": "Weather?"}])", R"([{"role": "user", "content": "Weather?"}])");
  expect_same(R"([{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be"}]},
                  {"role": "user", "content": [{"type": "input_text", "text": "Wea"}, {"type": "input_text", "text":
                  "ther?"}]}])",
              R"([{"role": "system", "content": "Be"}, {"role": "user", "content": "Weather?"}])");
  expect_same(R"([{"role": "user", "content": "Weather?"},
      {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
      {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [{"type": "output_text",
       "text": "I look.", "annotations": [], "logprobs": []}]},
      {"type": "function_call", "id": "fc_1", "call_id": "1", "name": "get_weather", "arguments": "{\"city\": \"Rome\"}"},
      {"type": "function_call", "call_id": "2", "name": "get_weather", "arguments": "{\"city\": \"Bonn\"}"},
      {"type": "function_call_output", "call_id": "1", "output": "It rains."},
      {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "So so."}]}])",
              R"([{"role": "user", "content": "Weather?"},
      {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [
       {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}},
       {"id": "2", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Bonn\"}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "It rains."},
      {"role": "tool", "tool_call_id": "2", "content": "So so."}])");
  expect_same(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "assistant",
      "content": "c"}, {"role": "user", "content": "d"}])",
              R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "assistant",
      "content": "c"}, {"role": "user", "content": "d"}])");
}

TEST(ServeResponses, AModelThatReasonsMayBeToldNotTo) {
  if (family_template().empty()) GTEST_SKIP() << "tools/setup installs the templates";
  const auto server = serve({}, family_session());
  json body = {{"input", "hello"}, {"max_output_tokens", 1}};
  const json plain = post(server->address(), kResponses, body).json();
  body["reasoning"] = {{"effort", "none"}};
  const json told = post(server->address(), kResponses, body).json();
  EXPECT_GT(told["usage"]["input_tokens"], plain["usage"]["input_tokens"]) << "its reasoning is over before it begins";
  EXPECT_EQ(told["reasoning"]["effort"], "none");
}

TEST(ServeResponses, WhatIsNotSupportedIsRefusedByName) {
  const auto server = serve();
  const std::vector<std::pair<std::string, json>> wrong = {
      {"store", true},
      {"previous_response_id", "resp_1"},
      {"conversation", "conv_1"},
      {"background", true},
      {"prompt", {{"id", "x"}}},
      {"include", {"message.output_text.logprobs"}},
      {"max_tool_calls", 3},
      {"text.format", {{"type", "magic"}}},
      {"text.verbosity", "low"},
      {"reasoning.effort", "high"},
      {"reasoning.summary", "detailed"},
      {"stream_options.include_obfuscation", true},
      {"stream_options.include_usage", true},
      {"truncation", "auto"},
      {"top_logprobs", 2},
      {"tool_choice", "required"},
      {"tool_choice", {{"type", "function"}, {"name", "f"}}},
      {"tools", {{{"type", "web_search"}}}},
      {"tools", {{{"type", "function"}, {"function", {{"name", "f"}}}}}},
      {"tools", "x"},
      {"instructions", 7},
      {"max_output_tokens", 0},
      {"max_tokens", 7},
      {"n", 2},
      {"temperature", -1},
      {"temperture", 1},
      {"input", json::array()},
      {"input", 7},
      {"input", nullptr},
      {"input", {"x"}},
      {"input", {{{"role", "tool"}, {"content", "x"}}}},
      {"input", {{{"role", "user"}}}},
      {"input", {{{"role", "user"}, {"content", "x"}, {"name", "me"}}}},
      {"input", {{{"role", "user"}, {"content", {{{"type", "input_image"}, {"image_url", "x"}}}}}}},
      {"input", {{{"type", "item_reference"}, {"id", "x"}}}},
      {"input", {{{"type", "function_call"}, {"call_id", "1"}, {"name", "f"}}}},
      {"input", {{{"type", "function_call_output"}, {"call_id", "1"}}}},
      {"input", {{{"type", "reasoning"}, {"id", "x"}, {"summary", json::array()}, {"encrypted_content", "x"}}}}};
  for (const auto& [name, value] : wrong) {
    json body = {{"input", "hello"}, {"max_output_tokens", 1}};
    const size_t dot = name.find('.');
    (dot == name.npos ? body[name] : body[name.substr(0, dot)][name.substr(dot + 1)]) = value;
    const HttpAnswer answer = post(server->address(), kResponses, body);
    EXPECT_EQ(answer.status, 400) << name << ' ' << answer.body;
    const json error = answer.json()["error"];
    EXPECT_TRUE(error["param"].is_string() && error["param"].get<std::string>().starts_with(name)) << answer.body;
    EXPECT_EQ(error["type"], "invalid_request_error");
  }
  EXPECT_EQ(post(server->address(), kResponses, {{"max_output_tokens", 1}}).json()["error"]["param"], "input");
}

TEST(ServeResponses, WhatAsksForNothingIsTaken) {
  const auto server = serve();
  const json body = json::parse(R"({"input": "hello", "max_output_tokens": 1, "store": false, "background": false,
      "previous_response_id": null, "text": {"format": {"type": "text"}}, "reasoning": {"effort": null, "summary": null},
      "include": ["reasoning.encrypted_content"], "truncation": "disabled", "metadata": {"a": "b"}, "user": "me",
      "tools": [], "tool_choice": "auto", "parallel_tool_calls": true, "service_tier": "auto", "top_logprobs": 0,
      "prompt_cache_key": "x", "stream_options": null, "instructions": null})");
  const HttpAnswer answer = post(server->address(), kResponses, body);
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.json()["metadata"], body["metadata"]);
}

std::unique_ptr<AnswerForm> form() { return std::make_unique<ResponsesForm>("m", nlohmann::ordered_json::object()); }

TEST(ServeResponses, ReasoningTextAndCallsAreItems) {
  if (family_template().empty()) GTEST_SKIP() << "tools/setup installs the templates";
  const std::vector<std::string> pieces = {
      "<think>\nRa",
      "in?\n</think>\n\nLet me ",
      "see. ",
      "<tool_call>\n{\"name\": \"get_weather\", \"argu",
      "ments\": {\"city\": \"Pa",
      "ris\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}",
      "\n</tool_call>"};
  const json tools = as_chats_have_it(kFlatTools);
  const json whole = json::parse(told(form(), tools, pieces, /*stream=*/false));
  ASSERT_EQ(whole["output"].size(), 4u) << whole;
  EXPECT_EQ(whole["status"], "completed");
  EXPECT_EQ(whole["output"][0]["type"], "reasoning");
  EXPECT_NE(whole["output"][0]["content"][0]["text"].get<std::string>().find("Rain?"), std::string::npos);
  EXPECT_NE(output_text(whole).find("Let me see."), std::string::npos);
  for (const size_t call : {size_t{2}, size_t{3}}) {
    EXPECT_EQ(whole["output"][call]["type"], "function_call");
    EXPECT_EQ(whole["output"][call]["name"], "get_weather");
    EXPECT_TRUE(whole["output"][call]["call_id"].get<std::string>().starts_with("call_"));
  }
  EXPECT_EQ(json::parse(whole["output"][2]["arguments"].get<std::string>()), json({{"city", "Paris"}}));

  const auto events = events_of(told(form(), tools, pieces, /*stream=*/true));
  json output = put_together(events);
  for (json& item : output) item["status"] = "completed";
  EXPECT_EQ(events.back()["type"], "response.completed");
  EXPECT_EQ(events.back()["response"]["output"], output);
  EXPECT_EQ(settled(events.back()["response"]), settled(whole));
  const auto types = types_of(events);
  for (const char* type : {"response.reasoning_text.delta", "response.reasoning_text.done",
                           "response.function_call_arguments.delta", "response.function_call_arguments.done"})
    EXPECT_TRUE(std::ranges::count(types, type) > 0) << type;
}

TEST(ServeResponses, WhatFailsInTheMiddleIsAFailedResponse) {
  if (family_template().empty()) GTEST_SKIP() << "tools/setup installs the templates";
  const AnswerEnd end{.finish = Finish::kFailed,
                      .usage = {},
                      .error = {.status = 503, .message = "hosts are lost", .param = "", .code = "engine_unavailable"}};
  const auto events = events_of(told(form(), json::array(), {"<think>", "no"}, /*stream=*/true, end));
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_EQ(events.back()["response"]["status"], "failed");
  EXPECT_EQ(events.back()["response"]["error"]["code"], "server_error");
  EXPECT_EQ(events.back()["response"]["error"]["message"], "hosts are lost");
}

}  // namespace
}  // namespace sluice::test

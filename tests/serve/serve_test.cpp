// Answers of the server are those of plain decoding: whole and streamed, alone and beside others, up to a stop string.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "serve/http_client.h"
#include "serve/served.h"
#include "support/harness.h"

namespace sluice::test {
namespace {

using nlohmann::json;

json messages(const std::string& text) { return {{{"role", "user"}, {"content", text}}}; }
const char* path_of(const json& body) { return body.contains("messages") ? kChat : kCompletions; }

struct Streamed {
  std::string text, finish;
  json usage;
  bool done = false;
};

Streamed streamed(const std::string& address, json body) {
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const HttpAnswer answer = post(address, path_of(body), body);
  EXPECT_EQ(answer.status, 200) << answer.body;
  Streamed all;
  std::set<std::string> ids;
  for (const json& event : events_of(answer.body)) {
    EXPECT_FALSE(all.done) << "nothing comes after [DONE]";
    all.done = event.is_null();
    if (all.done) continue;
    ids.insert(event["id"].get<std::string>());
    if (!event["usage"].is_null()) all.usage = event["usage"];
    for (const json& choice : event["choices"]) {
      all.text += text_of_piece(choice);
      if (!choice["finish_reason"].is_null()) all.finish = choice["finish_reason"].get<std::string>();
    }
  }
  EXPECT_EQ(ids.size(), 1u);
  return all;
}

void expect_answered(const std::string& address, const json& body) {
  SCOPED_TRACE(body.dump());
  const Expected expected = expected_of(body);
  const HttpAnswer answer = post(address, path_of(body), body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json whole = answer.json();
  EXPECT_EQ(text_of_answer(whole), expected.text);
  EXPECT_EQ(whole["choices"][0]["finish_reason"], expected.finish);
  EXPECT_EQ(whole["usage"]["completion_tokens"], expected.tokens);
  const Streamed pieces = streamed(address, body);
  EXPECT_EQ(pieces.text, expected.text);
  EXPECT_EQ(pieces.finish, expected.finish);
  EXPECT_EQ(pieces.usage["completion_tokens"], expected.tokens);
  EXPECT_TRUE(pieces.done);
}

TEST(Serve, WholeAndStreamedAnswersAreThoseOfPlainDecoding) {
  const auto server = serve();
  for (const json& shape : {json{{"temperature", 0}}, json{{"temperature", 0.9}, {"seed", 7}, {"top_p", 0.95}},
                            json{{"temperature", 1.5}, {"seed", 8}, {"top_k", 20}, {"repeat_penalty", 1.1}},
                            json{{"presence_penalty", 1.5}, {"frequency_penalty", 0.3}},
                            json{{"temperature", 0.7}, {"seed", 9}, {"frequency_penalty", -0.5}}}) {
    json chat = shape, completion = shape;
    chat["messages"] = messages("hello hello");
    completion["prompt"] = "one two one two";
    chat["max_tokens"] = completion["max_tokens"] = 60;
    chat["ignore_eos"] = completion["ignore_eos"] = true;
    expect_answered(server->address(), chat);
    expect_answered(server->address(), completion);
  }
}

TEST(Serve, PenaltiesAreForWhatTheAnswerHoldsAndNotForItsPrompt) {
  const auto server = serve();
  json body = {{"prompt", "one two one two"}, {"max_tokens", 30}, {"ignore_eos", true}};
  const std::string plain = text_of_answer(post(server->address(), kCompletions, body).json());
  body["frequency_penalty"] = 2.0;
  const json penalised = post(server->address(), kCompletions, body).json();
  EXPECT_NE(text_of_answer(penalised), plain);
  for (const char* method : {"ar", "specpipe", "surge", "specinfer"}) {
    body["method"] = method;
    EXPECT_EQ(text_of_answer(post(server->address(), kCompletions, body).json()), text_of_answer(penalised)) << method;
  }
  // Of one token no answer holds anything before.
  body["max_tokens"] = 1;
  EXPECT_TRUE(plain.starts_with(text_of_answer(post(server->address(), kCompletions, body).json())));
}

TEST(Serve, ManyAtATimeGetEachTheAnswerThatItGetsAlone) {
  ServerOptions options;
  options.concurrency = 3;  // the others wait, or fit in between
  const auto server = serve(options);
  const std::vector<std::string> methods = {"surge", "ar", "specpipe", "auto", "specinfer"};
  std::vector<json> bodies;
  Dice dice(3);
  for (size_t i = 0; i < 16; ++i) {
    json body = {{"max_tokens", dice.between(1, 120)},
                 {"ignore_eos", dice.chance(0.7)},
                 {"temperature", dice.pick({0.0, 0.7, 1.2})},
                 {"seed", i},
                 {"method", methods[i % methods.size()]}};
    std::string text = "one two three ";
    for (int n = dice.between(0, 12); n > 0; --n) text += dice.pick({"one ", "two ", "three "});
    if (dice.chance(0.5))
      body["messages"] = messages(text);
    else
      body["prompt"] = text;
    bodies.push_back(std::move(body));
  }
  std::vector<json> answers(bodies.size());
  std::vector<std::thread> clients;
  for (size_t i = 0; i < bodies.size(); ++i)
    clients.emplace_back([&, i] {
      if (i % 2 == 0) {
        answers[i] = post(server->address(), path_of(bodies[i]), bodies[i]).json();
      } else {
        const Streamed pieces = streamed(server->address(), bodies[i]);
        answers[i] = {{"choices", {{{"text", pieces.text}, {"finish_reason", pieces.finish}}}}};
      }
    });
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < bodies.size(); ++i) {
    SCOPED_TRACE(bodies[i].dump());
    ASSERT_TRUE(answers[i].contains("choices")) << answers[i].dump();
    const Expected expected = expected_of(bodies[i]);
    EXPECT_EQ(text_of_answer(answers[i]), expected.text);
    EXPECT_EQ(answers[i]["choices"][0]["finish_reason"], expected.finish);
  }
}

TEST(Serve, AStopStringEndsTheAnswerWhereverItStands) {
  const auto server = serve();
  json body = {{"prompt", "one two"}, {"max_tokens", 40}, {"ignore_eos", true}, {"temperature", 1.0}, {"seed", 3}};
  const std::string text = expected_of(body).text;
  for (const size_t at : {size_t{0}, text.size() / 3, text.size() / 2}) {
    size_t begin = at;
    while (begin < text.size() && (text[begin] & 0xC0) == 0x80) ++begin;
    size_t end = std::min(begin + 5, text.size());
    while (end < text.size() && (text[end] & 0xC0) == 0x80) ++end;
    body["stop"] = text.substr(begin, end - begin);
    expect_answered(server->address(), body);
  }
  body["stop"] = text + "and more";  // all of it is held back until the end
  expect_answered(server->address(), body);
  body["stop"] = {"not there", text.substr(0, 1)};
  EXPECT_EQ(text_of_answer(post(server->address(), kCompletions, body).json()), "");
}

TEST(Serve, UsageTellsWhatTheGuessesMet) {
  const auto server = serve({}, slow_session());  // where a row more costs nothing
  json body = {
      {"messages", messages("one two one two one two one two one")}, {"max_tokens", 50}, {"method", "specpipe"}};
  body["ignore_eos"] = true;
  const json usage = post(server->address(), kChat, body).json()["usage"];
  EXPECT_EQ(usage["completion_tokens"], 50);
  EXPECT_EQ(usage["total_tokens"], usage["prompt_tokens"].get<int>() + 50);
  EXPECT_EQ(usage["sluice"]["method"], "specpipe");
  EXPECT_EQ(usage["sluice"]["source"], "ngram");
  EXPECT_GT(usage["sluice"]["drafted"], 0);
  EXPECT_GT(usage["sluice"]["tokens_per_second"], 0);
}

TEST(Serve, AnAnswerWithoutASeedTellsItsOwn) {
  const auto server = serve();
  json body = {{"prompt", "one"}, {"max_tokens", 30}, {"ignore_eos", true}, {"temperature", 1.0}};
  const json first = post(server->address(), kCompletions, body).json();
  const json second = post(server->address(), kCompletions, body).json();
  EXPECT_NE(first["usage"]["sluice"]["seed"], second["usage"]["sluice"]["seed"]);
  body["seed"] = first["usage"]["sluice"]["seed"];
  EXPECT_EQ(text_of_answer(post(server->address(), kCompletions, body).json()), text_of_answer(first));
}

TEST(Serve, TheNextTurnOfAChatFindsWhatWasComputed) {
  const auto server = serve();
  json body = {{"messages", messages("tell me of one and two and three")}, {"max_tokens", 20}};
  const json first = post(server->address(), kChat, body).json();
  EXPECT_EQ(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  body["messages"].push_back({{"role", "assistant"}, {"content", text_of_answer(first)}});
  body["messages"].push_back({{"role", "user"}, {"content", "and more"}});
  const json second = post(server->address(), kChat, body).json();
  EXPECT_GT(second["usage"]["prompt_tokens_details"]["cached_tokens"], 20);
  EXPECT_EQ(text_of_answer(second), expected_of(body).text);
}

TEST(Serve, WidthAndDepthAreARequestsOwn) {
  const auto server = serve();
  for (const json& options : {json{{"method", "surge"}, {"width", 1}}, json{{"method", "specpipe"}, {"width", 200}},
                              json{{"method", "surge"}, {"width", 256}}}) {
    json body = {{"prompt", "one two one two one"}, {"max_tokens", 60}, {"ignore_eos", true}};
    body.update(options);
    expect_answered(server->address(), body);
  }
}

TEST(Serve, WhatWouldChangeTheAnswerAndIsNotSupportedIsRefused) {
  const auto server = serve();
  const std::vector<std::pair<std::string, json>> wrong = {{"n", 17},
                                                           {"n", 0},
                                                           {"best_of", 2},
                                                           {"logprobs", 3},
                                                           {"top_logprobs", 3},
                                                           {"presence_penalty", 2.5},
                                                           {"frequency_penalty", "much"},
                                                           {"tools", {{{"type", "function"}}}},
                                                           {"tool_choice", "required"},
                                                           {"response_format", {{"type", "json_object"}}},
                                                           {"temperture", 1},
                                                           {"temperature", "hot"},
                                                           {"temperature", -1},
                                                           {"temperature", 1e300},
                                                           {"top_p", 0},
                                                           {"top_k", 1.5},
                                                           {"seed", 1.5},
                                                           {"seed", "7"},
                                                           {"max_tokens", 0},
                                                           {"max_tokens", -1},
                                                           {"max_tokens", uint64_t{1} << 63},
                                                           {"max_completion_tokens", 1e30},
                                                           {"stop", json::array({"", "x"})},
                                                           {"stop", std::vector<std::string>(17, "x")},
                                                           {"stream", 1},
                                                           {"stream_options", {{"include_usage", true}}},
                                                           {"logit_bias", {{"999999", 1}}},
                                                           {"logit_bias", {{"x", 1}}},
                                                           {"method", "magic"},
                                                           {"method", "p-eagle"},
                                                           {"width", 0},
                                                           {"depth", 6}};
  for (const auto& [name, value] : wrong) {
    const HttpAnswer answer = post(server->address(), kChat, {{"messages", messages("hello")}, {name, value}});
    EXPECT_EQ(answer.status, 400) << name << ' ' << answer.body;
    const json error = answer.json()["error"];
    EXPECT_TRUE(error["param"].is_string() && error["param"].get<std::string>().starts_with(name)) << answer.body;
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_EQ(error["message"].get<std::string>().find('\n'), std::string::npos);
  }
  for (const auto& [name, value] : std::vector<std::pair<std::string, json>>{{"n", 1},
                                                                             {"tools", json::array()},
                                                                             {"user", "me"},
                                                                             {"max_completion_tokens", nullptr},
                                                                             {"stop", nullptr},
                                                                             {"response_format", {{"type", "text"}}}})
    EXPECT_EQ(
        post(server->address(), kChat, {{"messages", messages("hello")}, {"max_tokens", 1}, {name, value}}).status, 200)
        << name;
}

TEST(Serve, MessagesAreReadAsTheyAreOrRefused) {
  const auto server = serve();
  const auto ask_with = [&](const json& all) {
    return post(server->address(), kChat, {{"messages", all}, {"max_tokens", 12}, {"ignore_eos", true}});
  };
  const json plain = json::parse(R"([{"role": "system", "content": "be"}, {"role": "user", "content": "hello"}])");
  const json parts = json::parse(R"([{"role": "developer", "content": "be", "name": null},
      {"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}], "annotations": []}])");
  EXPECT_EQ(text_of_answer(ask_with(parts).json()), text_of_answer(ask_with(plain).json()));
  for (const char* wrong : {"[]", "\"hello\"", "[\"hello\"]", R"([{"role": "user"}])", R"([{"content": "x"}])",
                            R"([{"role": "tool", "content": "x"}])", R"([{"role": "user", "content": 7}])",
                            R"([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}])",
                            R"([{"role": "user", "content": "x", "name": "me"}])", "null", "{}"}) {
    const HttpAnswer answer = ask_with(json::parse(wrong));
    EXPECT_EQ(answer.status, 400) << wrong;
    EXPECT_TRUE(answer.json()["error"]["param"].get<std::string>().starts_with("messages")) << answer.body;
  }
  EXPECT_EQ(ask_with(messages(std::string(5000, 'x'))).json()["error"]["code"], "context_length_exceeded");
}

TEST(Serve, SpecialTokensInMessagesStayText) {
  const auto server = serve();
  const json all = messages("<|im_end|>");
  const json rendered = post(server->address(), "/apply-template", {{"messages", all}}).json();
  EXPECT_EQ(rendered["prompt"], "<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n");
  const auto tokens = post(server->address(), "/tokenize", {{"content", rendered["prompt"]}}).json()["tokens"];
  const json usage = post(server->address(), kChat, {{"messages", all}, {"max_tokens", 1}}).json()["usage"];
  EXPECT_GT(usage["prompt_tokens"], tokens.size()) << "written out in the message, one token where it is a marker";
}

TEST(Serve, TextsBecomeTokensAndTextsAgain) {
  const auto server = serve();
  const json tokens = post(server->address(), "/tokenize", {{"content", "hello ü"}}).json()["tokens"];
  EXPECT_EQ(tokens, json(served_session().tokenizer().encode("hello ü", false, true).value()));
  EXPECT_EQ(post(server->address(), "/detokenize", {{"tokens", tokens}}).json()["content"], "hello ü");
  const json by_ids = {{"prompt", tokens}, {"max_tokens", 9}}, by_text = {{"prompt", "hello ü"}, {"max_tokens", 9}};
  EXPECT_EQ(text_of_answer(post(server->address(), kCompletions, by_ids).json()),
            text_of_answer(post(server->address(), kCompletions, by_text).json()));
  for (const json& wrong : {json{{"content", 7}}, json::object(), json{{"content", "x"}, {"more", 1}}})
    EXPECT_EQ(post(server->address(), "/tokenize", wrong).status, 400);
  for (const json& wrong : {json{{"tokens", {-1}}}, json{{"tokens", {1 << 30}}}, json{{"tokens", "x"}}, json::object()})
    EXPECT_EQ(post(server->address(), "/detokenize", wrong).status, 400);
}

TEST(Serve, TellsWhichModelThereIs) {
  const auto server = serve();
  const json list = ask(server->address(), "GET", "/v1/models").json();
  const std::string name = list["data"][0]["id"];
  EXPECT_EQ(name, served_session().model().hparams().name);
  EXPECT_EQ(ask(server->address(), "GET", "/v1/models/" + name).json(), list["data"][0]);
  EXPECT_EQ(ask(server->address(), "GET", "/v1/models/another").status, 404);
  json body = {{"prompt", "one"}, {"max_tokens", 1}, {"model", name}};
  EXPECT_EQ(post(server->address(), kCompletions, body).json()["model"], name);
  body["model"] = "another";
  EXPECT_EQ(post(server->address(), kCompletions, body).json()["error"]["code"], "model_not_found");
  EXPECT_EQ(ask(server->address(), "GET", "/health?verbose").json()["status"], "ok");
}

}  // namespace
}  // namespace sluice::test

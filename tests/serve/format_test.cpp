// Answers in a form that was asked for, the same by every method.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <set>

#include "grammar/grammars.h"
#include "serve/http_client.h"
#include "serve/json_body.h"
#include "serve/request_reader.h"
#include "serve/served.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

using nlohmann::json;

// Of a family that begins what it says by a mark, where it does not call at once.
std::string published_template(const std::string& name) {
  std::ifstream file(std::filesystem::path(SLUICE_SOURCE_DIR) / ".venv/llama/share/llama-common/templates" / name);
  return {std::istreambuf_iterator<char>(file), {}};
}
std::string calling_template() { return published_template("CohereForAI-c4ai-command-r-plus-tool_use.jinja"); }

const json kSchema = json::parse(R"({"type": "object", "properties": {"sky": {"enum": ["blue", "grey"]},
    "degrees": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["sky", "degrees"]})");

json chat(const json& more) {
  json body = {{"messages", {{{"role", "user"}, {"content", "How is the sky?"}}}}, {"max_tokens", 200}};
  body.update(more);
  return body;
}

TEST(ServeFormat, AnswersAreOfTheSchemaWhateverTheMethod) {
  const auto server = serve({}, whole_session());
  const json format = {{"type", "json_schema"}, {"json_schema", {{"name", "weather"}, {"schema", kSchema}}}};
  std::set<std::string> texts;
  for (const double temperature : {0.0, 1.5}) {
    std::set<std::string> same;
    for (const char* method : {"ar", "surge", "specpipe", "sd", "specinfer"}) {
      const HttpAnswer answer =
          post(server->address(), kChat,
               chat({{"response_format", format}, {"method", method}, {"temperature", temperature}, {"seed", 5}}));
      ASSERT_EQ(answer.status, 200) << answer.body;
      const std::string text = text_of_answer(answer.json());
      const json said = json::parse(text, nullptr, /*allow_exceptions=*/false);
      ASSERT_TRUE(said.is_object()) << method << ": " << text;
      EXPECT_TRUE(said["sky"] == "blue" || said["sky"] == "grey") << text;
      EXPECT_LE(said["degrees"].get<int>(), 99) << text;
      EXPECT_EQ(answer.json()["choices"][0]["finish_reason"], "stop");
      same.insert(text);
    }
    EXPECT_EQ(same.size(), 1u);
    texts.insert(same.begin(), same.end());
  }
  EXPECT_EQ(texts.size(), 2u);
}

// As OpenAI's API has it, and as the schema's author would have the answer.
TEST(ServeFormat, MembersComeInTheOrderOfTheSchema) {
  const auto server = serve({}, whole_session());
  const std::string body = R"({"messages": [{"role": "user", "content": "x"}], "max_tokens": 200, "json_schema":
      {"type": "object", "properties": {"why": {"enum": ["sun", "rain"]}, "sky": {"enum": ["blue", "grey"]}},
       "required": ["why", "sky"]}})";
  const HttpAnswer answer = ask(server->address(), "POST", kChat, body);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const std::string text = text_of_answer(answer.json());
  ASSERT_NE(text.find("sky"), text.npos) << text;
  EXPECT_LT(text.find("why"), text.find("sky")) << text;
}

TEST(ServeFormat, TheResponsesApiSaysItInItsOwnWay) {
  const auto server = serve({}, whole_session());
  const auto said = [&](const json& format, bool stream) {
    json body = {{"input", "How is the sky?"}, {"text", {{"format", format}}}, {"max_output_tokens", 200}};
    body.update({{"temperature", 1.0}, {"seed", 5}, {"stream", stream}});
    return post(server->address(), "/v1/responses", body);
  };
  const json format = {{"type", "json_schema"}, {"name", "weather"}, {"strict", true}, {"schema", kSchema}};
  const json chats = {{"type", "json_schema"}, {"json_schema", {{"name", "weather"}, {"schema", kSchema}}}};
  const HttpAnswer same =
      post(server->address(), kChat, chat({{"response_format", chats}, {"temperature", 1.0}, {"seed", 5}}));
  const HttpAnswer whole = said(format, false);
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json response = whole.json();
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["text"]["format"], format);
  EXPECT_EQ(response["output"][0]["content"][0]["text"], text_of_answer(same.json()));
  const auto events = events_of(said(format, true).body);
  std::string text;
  for (const json& event : events)
    if (event["type"] == "response.output_text.delta") text += event["delta"].get<std::string>();
  EXPECT_EQ(text, text_of_answer(same.json()));
  EXPECT_EQ(events.back()["response"]["text"]["format"], format);

  const HttpAnswer any = said({{"type", "json_object"}}, false);
  EXPECT_EQ(any.status, 200) << any.body;
  EXPECT_EQ(any.json()["output"][0]["content"][0]["text"].get<std::string>().front(), '{') << any.body;
  EXPECT_EQ(said({{"type", "text"}}, false).json()["text"]["format"], json({{"type", "text"}}));
}

TEST(ServeFormat, TheResponsesApiRefusesWhatIsNone) {
  const auto server = serve({}, whole_session());
  const auto refused = [&](const json& format, const std::string& param, const json& more = json::object()) {
    json body = {{"input", "x"}, {"text", {{"format", format}}}, {"max_output_tokens", 20}};
    body.update(more);
    const HttpAnswer answer = post(server->address(), "/v1/responses", body);
    EXPECT_EQ(answer.status, 400) << format << answer.body;
    EXPECT_EQ(answer.json()["error"]["param"], param) << answer.body;
  };
  refused("json_object", "text.format");
  refused({{"type", "yaml"}}, "text.format");
  refused({{"type", "json_object"}, {"schema2", 1}}, "text.format.schema2");
  refused({{"type", "json_schema"}, {"name", "x"}}, "text.format.schema");
  refused({{"type", "json_schema"}, {"schema", kSchema}}, "text.format.name");
  refused({{"type", "json_schema"}, {"name", "x"}, {"schema", {{"type", "thing"}}}}, "text.format.schema");
  refused({{"type", "json_schema"}, {"name", "x"}, {"schema", kSchema}}, "text.format.schema",
          {{"tools", {{{"type", "function"}, {"name", "f"}}}}});
}

TEST(ServeFormat, EachWayToSayItIsRead) {
  const auto server = serve({}, whole_session());
  const auto text = [&](const char* path, json body) {
    body.update({{"temperature", 1.0}, {"seed", 3}});
    const HttpAnswer answer = post(server->address(), path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.status == 200 ? text_of_answer(answer.json()) : "";
  };
  const json prompt = {{"prompt", "The sky is"}, {"max_tokens", 200}};
  const auto with = [&](const std::string& name, const json& value) {
    json body = prompt;
    body[name] = value;
    return text(kCompletions, body);
  };
  EXPECT_TRUE(json::parse(with("json_schema", kSchema)).contains("degrees"));
  EXPECT_TRUE(json::parse(with("response_format", {{"type", "json_object"}, {"schema", kSchema}})).contains("sky"));
  const std::string digits = with("regex", "[0-9]{5}");
  EXPECT_EQ(digits.find_first_not_of("0123456789"), digits.npos);
  EXPECT_EQ(digits.size(), 5u);
  const std::string word = with("grammar", R"(root ::= "blue" | "grey")");
  EXPECT_TRUE(word == "blue" || word == "grey") << word;
  EXPECT_TRUE(with("grammar", "").size() > 0) << "none";
  const std::string open = text(kChat, chat({{"response_format", {{"type", "json_object"}}}, {"max_tokens", 30}}));
  EXPECT_EQ(open.find('{'), open.find_first_not_of(" \n\t")) << open;
}

TEST(ServeFormat, CallsCanBeForced) {
  if (calling_template().empty()) GTEST_SKIP() << "tools/setup installs the templates";
  TinyModelSpec spec = narrow_model(4);
  spec.context_length = 4096;
  spec.chat_template = calling_template();
  const Session session = open_whole(write_tiny_model(spec, temp_path("calling.gguf")));
  const auto server = serve({}, session);
  const std::string mark = std::to_string(session.tokenizer().encode("<", false, false).value().front());
  const auto tool = [](const std::string& name) {
    return json{{"type", "function"}, {"function", {{"name", name}, {"parameters", kSchema}}}};
  };
  const json tools = {tool("tell_weather"), tool("keep_weather")};
  for (const json& choice : {json("required"), json{{"type", "function"}, {"function", {{"name", "keep_weather"}}}}}) {
    std::set<std::string> same;
    for (const char* method : {"ar", "surge"}) {
      const HttpAnswer answer = post(server->address(), kChat,
                                     chat({{"tools", tools},
                                           {"tool_choice", choice},
                                           {"method", method},
                                           {"temperature", 1.0},
                                           {"seed", 2},
                                           {"max_tokens", 600},
                                           {"logit_bias", {{mark, -100}}}}));
      ASSERT_EQ(answer.status, 200) << answer.body;
      const json said = answer.json()["choices"][0];
      ASSERT_EQ(said["finish_reason"], "tool_calls") << answer.body;
      const json call = said["message"]["tool_calls"][0]["function"];
      if (choice != "required") {
        EXPECT_EQ(call["name"], "keep_weather");
      }
      EXPECT_TRUE(json::parse(call["arguments"].get<std::string>()).contains("sky")) << answer.body;
      same.insert(call.dump());
    }
    EXPECT_EQ(same.size(), 1u);
  }
}

TEST(ServeFormat, CallsThatNobodyForcesAreOfTheirFormOnceTheyBegin) {
  const std::string source = published_template("Qwen-Qwen2.5-7B-Instruct.jinja");
  if (source.empty()) GTEST_SKIP() << "tools/setup installs the templates";
  TinyModelSpec spec = narrow_model(4);
  spec.context_length = 4096;
  spec.chat_template = source;
  const Session session = open_whole(write_tiny_model(spec, temp_path("calls_when_it_wants.gguf")));
  const json tool = {{"type", "function"}, {"function", {{"name", "keep_weather"}, {"parameters", kSchema}}}};
  json body = chat({{"tools", {tool}}, {"max_tokens", 24}, {"temperature", 1.0}, {"seed", 2}});
  const auto grammar_of = [&](const json& body) {
    const auto asked = read_chat(session, {}, parse_body(body.dump()).value());
    EXPECT_TRUE(asked) << asked.error().message;
    return asked->spec.sampling.grammar;
  };
  const AnswerGrammar grammar = grammar_of(body);
  ASSERT_FALSE(grammar.triggers.empty());
  const auto constraint = constrain_by(session.model().vocabulary(), session.model().n_logits())(grammar);
  const auto write = [&](const std::string& text) {
    const auto tokens = session.tokenizer().encode(text, false, false).value();
    for (const Token token : tokens) constraint->accept(token);
    return constraint->permitted();
  };
  EXPECT_EQ(write("It rains. "), nullptr) << "it need not call";
  const TokenMask* permitted = write(grammar.triggers[0].text);
  ASSERT_NE(permitted, nullptr);
  EXPECT_FALSE(permitted->has(session.tokenizer().encode("?", false, false).value().front()));

  const auto server = serve({}, session);
  std::set<std::string> same;
  for (const char* method : {"ar", "surge"}) {
    body["method"] = method;
    const HttpAnswer answer = post(server->address(), kChat, body);
    ASSERT_EQ(answer.status, 200) << answer.body;
    same.insert(answer.json()["choices"][0].dump());
  }
  EXPECT_EQ(same.size(), 1u);
  body["tool_choice"] = "none";
  EXPECT_TRUE(grammar_of(body).empty());
}

TEST(ServeFormat, SeveralAnswersAndStreamsAreOfIt) {
  const auto server = serve({}, whole_session());
  const HttpAnswer three =
      post(server->address(), kChat, chat({{"regex", "[a-c]{4}"}, {"n", 3}, {"temperature", 1.0}, {"seed", 1}}));
  ASSERT_EQ(three.status, 200) << three.body;
  const json choices = three.json()["choices"];
  for (const json& choice : choices)
    EXPECT_EQ(choice["message"]["content"].get<std::string>().find_first_not_of("abc"), std::string::npos);
  const HttpAnswer streamed = post(server->address(), kChat, chat({{"regex", "[a-c]{4}"}, {"stream", true}}));
  std::string text;
  for (const json& event : events_of(streamed.body))
    if (event.is_object()) text += text_of_piece(event["choices"][0]);
  EXPECT_EQ(text.size(), 4u) << streamed.body;
}

// A form in which each token takes longer than the one before.
TEST(ServeFormat, WhatTakesTooLongToMatchEndsThatAnswerAlone) {
  const auto server = serve({}, whole_session());
  const std::string end = std::to_string(whole_session().tokenizer().eos());
  const json dear =
      chat({{"grammar", R"(root ::= root root | "a")"}, {"logit_bias", {{end, -100}}}, {"max_tokens", 1000}});
  const json other = {{"prompt", "one two"}, {"max_tokens", 200}, {"ignore_eos", true}};
  auto beside = std::async(std::launch::async, [&] { return post(server->address(), kCompletions, other); });
  for (const char* method : {"ar", "surge"}) {
    json body = dear;
    body["method"] = method;
    const HttpAnswer answer = post(server->address(), kChat, body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.json()["error"]["param"], "grammar");
    EXPECT_NE(answer.json()["error"]["message"].get<std::string>().find("longer with every token"), std::string::npos);
    body["stream"] = true;
    body["n"] = 2;
    const auto events = events_of(post(server->address(), kChat, body).body);
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events.back()["error"]["param"], "grammar") << events.back();
  }
  EXPECT_EQ(text_of_answer(beside.get().json()), expected_of(other).text);
  EXPECT_EQ(text_of_answer(post(server->address(), kCompletions, other).json()), expected_of(other).text);
  EXPECT_NE(ask(server->address(), "GET", "/metrics").body.find("finish=\"form_failed\"} 4"), std::string::npos);
}

TEST(ServeFormat, WhatIsNoneIsRefused) {
  const auto server = serve({}, whole_session());
  const auto refused = [&](const json& more, const std::string& param) {
    const HttpAnswer answer = post(server->address(), kChat, chat(more));
    EXPECT_EQ(answer.status, 400) << more << answer.body;
    const json error = answer.json()["error"];
    EXPECT_TRUE(error["param"].is_string() && error["param"].get<std::string>().starts_with(param)) << answer.body;
    EXPECT_EQ(error["message"].get<std::string>().find('\n'), std::string::npos) << answer.body;
  };
  for (const json& wrong : {json("json"), json{{"type", "yaml"}}, json::object(), json{{"type", "json_schema"}},
                            json{{"type", "json_schema"}, {"json_schema", {{"name", "x"}}}},
                            json{{"type", "json_schema"}, {"json_schema", {{"schema", {{"type", "thing"}}}}}}})
    refused({{"response_format", wrong}}, "response_format");
  refused({{"grammar", 7}}, "grammar");
  refused({{"grammar", "root ::= missing"}}, "grammar");
  refused({{"grammar", std::string(300000, '#')}}, "grammar");
  refused({{"regex", "(a"}}, "regex");
  refused({{"json_schema", "x"}}, "json_schema");
  refused({{"regex", "a"}, {"grammar", R"(root ::= "a")"}}, "");
  refused({{"regex", "a"}, {"ignore_eos", true}}, "ignore_eos");
}

TEST(ServeFormat, WhereAnswersAreNotReadItIsRefused) {
  const auto server = serve();
  for (const auto& [name, value] : std::vector<std::pair<std::string, json>>{
           {"response_format", {{"type", "json_object"}}}, {"regex", "a"}, {"grammar", R"(root ::= "a")"}}) {
    const HttpAnswer answer = post(server->address(), kChat, chat({{name, value}}));
    EXPECT_EQ(answer.status, 400) << answer.body;
    EXPECT_EQ(answer.json()["error"]["param"], name);
  }
}

}  // namespace
}  // namespace sluice::test

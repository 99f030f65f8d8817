// POST /completion and /infill: the answers that texts get, in llama-server's own words.
#include <ggml.h>
#include <gguf.h>
#include <gtest/gtest.h>

#include "serve/http_client.h"
#include "serve/served.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

using nlohmann::json;

constexpr const char *kCompletion = "/completion", *kInfill = "/infill";

json answer_to(const Server& server, const json& body, const char* path = kCompletion) {
  const HttpAnswer answer = post(server.address(), path, body);
  EXPECT_EQ(answer.status, 200) << answer.body;
  return answer.json();
}

// The last event of a stream, with the text and the tokens of those before it.
json streamed(const Server& server, json body) {
  body["stream"] = true;
  const HttpAnswer answer = post(server.address(), kCompletion, body);
  EXPECT_EQ(answer.status, 200) << answer.body;
  std::string text;
  json last, tokens = json::array(), probabilities = json::array();
  for (const json& event : events_of(answer.body)) {
    EXPECT_TRUE(last.is_null()) << "nothing comes after the last event";
    if (event["stop"] == true) last = event;
    text += event["content"];
    for (const json& token : event["tokens"]) tokens.push_back(token);
    if (!event.contains("completion_probabilities")) continue;
    EXPECT_EQ(event["completion_probabilities"].size(), 1u);
    probabilities.push_back(event["completion_probabilities"][0]);
  }
  last["content"] = text;
  last["tokens"] = tokens;
  if (!probabilities.empty()) last["completion_probabilities"] = probabilities;
  return last;
}

// What of an answer is the same each time.
json lasting(json answer) {
  for (const char* name : {"timings", "sluice", "tokens_cached", "generation_settings"}) answer.erase(name);
  return answer;
}

std::string text_of(const Server& server, const json& tokens) {
  return post(server.address(), "/detokenize", {{"tokens", tokens}}).json()["content"];
}

TEST(ServeNative, AnswersAreThoseOfTextsWholeAndStreamed) {
  const auto server = serve();
  for (const json& shape : {json{{"temperature", 0}}, json{{"temperature", 0.9}, {"seed", 7}, {"top_p", 0.95}},
                            json{{"temperature", 1.5}, {"seed", 8}, {"top_k", 20}, {"repeat_penalty", 1.1}}}) {
    json body = shape;
    body.update({{"prompt", "one two one two"}, {"max_tokens", 40}, {"ignore_eos", true}});
    const Expected expected = expected_of(body);
    body["return_tokens"] = true;
    const json whole = answer_to(*server, body);
    EXPECT_EQ(whole["content"], expected.text);
    EXPECT_EQ(whole["tokens_predicted"], expected.tokens);
    EXPECT_EQ(whole["tokens"].size(), expected.tokens);
    EXPECT_EQ(whole["stop"], true);
    EXPECT_EQ(whole["stop_type"], "limit");
    EXPECT_EQ(whole["truncated"], false);
    EXPECT_EQ(whole["prompt"], "one two one two");
    EXPECT_EQ(whole["tokens_evaluated"],
              whole["timings"]["prompt_n"].get<int>() + whole["timings"]["cache_n"].get<int>());
    EXPECT_EQ(whole["has_new_line"], expected.text.find('\n') != std::string::npos);
    EXPECT_EQ(lasting(streamed(*server, body)), lasting(whole));
  }
}

TEST(ServeNative, SaysWhyAnAnswerHasEnded) {
  const auto server = serve();
  json body = {{"prompt", "one two"}, {"n_predict", 40}, {"ignore_eos", true}, {"temperature", 1.0}, {"seed", 3}};
  const std::string text = answer_to(*server, body)["content"];
  const size_t at = text.find_first_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
  ASSERT_NE(at, std::string::npos) << text;
  body["stop"] = {text.substr(at, 1)};
  json stopped = answer_to(*server, body);
  EXPECT_EQ(stopped["stop_type"], "word");
  EXPECT_EQ(stopped["stopping_word"], body["stop"][0]);
  EXPECT_EQ(stopped["content"], text.substr(0, at));
  EXPECT_EQ(lasting(streamed(*server, body))["stopping_word"], body["stop"][0]);

  const json filled = answer_to(*server, {{"prompt", "one two"}, {"n_predict", -1}, {"ignore_eos", true}});
  EXPECT_EQ(filled["stop_type"], "limit");
  EXPECT_EQ(filled["truncated"], true);
  EXPECT_EQ(filled["tokens_predicted"].get<int>() + filled["tokens_evaluated"].get<int>(),
            served_session().options().context);

  const Token end = served_session().tokenizer().eos();
  const json ended = answer_to(*server, {{"prompt", "one"}, {"n_predict", 9}, {"logit_bias", {{end, 100}}}});
  EXPECT_EQ(ended["stop_type"], "eos");
  EXPECT_EQ(ended["content"], "");
}

TEST(ServeNative, TokensAreThoseOfTheText) {
  const auto server = serve({}, whole_session());
  json body = {{"prompt", "one two"}, {"n_predict", 12}, {"grammar", "root ::= [a-z]{30}"}};
  EXPECT_EQ(answer_to(*server, body)["tokens"], json::array());
  body["return_tokens"] = true;
  const json whole = answer_to(*server, body);
  EXPECT_EQ(text_of(*server, whole["tokens"]), whole["content"]);
  EXPECT_EQ(whole["generation_settings"]["grammar"], body["grammar"]);
}

TEST(ServeNative, ProbabilitiesAreThoseOfTextsAnEventAToken) {
  const auto server = serve();
  json body = {{"prompt", "one two one two"}, {"n_predict", 20}, {"ignore_eos", true}, {"n_probs", 4}};
  const json whole = answer_to(*server, body);
  const json text =
      answer_to(*server, {{"prompt", "one two one two"}, {"max_tokens", 20}, {"ignore_eos", true}, {"logprobs", 4}},
                kCompletions);
  const json& all = whole["completion_probabilities"];
  ASSERT_EQ(all.size(), 20u);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i]["logprob"], text["choices"][0]["logprobs"]["token_logprobs"][i]);
    EXPECT_EQ(all[i]["top_logprobs"].size(), 4u);
    EXPECT_EQ(all[i]["top_logprobs"][0]["id"], all[i]["id"]) << "it is greedy";
  }
  EXPECT_EQ(streamed(*server, body)["completion_probabilities"], all);
}

TEST(ServeNative, PromptsAreTextsAndTokensAndBoth) {
  const auto server = serve();
  const json tokens =
      post(server->address(), "/tokenize", {{"content", "one two three"}, {"add_special", true}}).json()["tokens"];
  const json two = post(server->address(), "/tokenize", {{"content", " two"}}).json()["tokens"];
  json mixed = {"one"};
  for (const json& token : two) mixed.push_back(token);
  mixed.push_back(" three");
  json first;
  for (const json& prompt : {json("one two three"), tokens, json::array({tokens}), mixed,
                             json{{"prompt_string", "one two three"}}, json::array({"one two three"})}) {
    const json answer = answer_to(*server, {{"prompt", prompt}, {"n_predict", 8}, {"ignore_eos", true}});
    if (first.is_null()) first = answer["content"];
    EXPECT_EQ(answer["content"], first) << prompt;
    EXPECT_EQ(answer["prompt"], "one two three") << prompt;
  }
}

TEST(ServeNative, SeveralPromptsGetEachItsAnswer) {
  const auto server = serve();
  json body = {{"n_predict", 8}, {"ignore_eos", true}};
  body["prompt"] = json::array({"one two", {{"prompt_string", "three"}}, "one two"});
  const json answers = answer_to(*server, body);
  ASSERT_EQ(answers.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    json alone = body;
    alone["prompt"] = body["prompt"][i];
    json expected = lasting(answer_to(*server, alone));
    expected["index"] = i;
    EXPECT_EQ(lasting(answers[i]), expected);
  }
  body["prompt"][1] = 7.5;
  EXPECT_EQ(post(server->address(), kCompletion, body).status, 400);
  body["prompt"] = {"one", "two"};
  body["stream"] = true;
  EXPECT_EQ(post(server->address(), kCompletion, body).json()["error"]["param"], "stream");
  body["stream"] = false;
  body["prompt"] = std::vector<std::string>(17, "one");
  EXPECT_EQ(post(server->address(), kCompletion, body).status, 400);
}

TEST(ServeNative, WhoGoesAwayEndsTheAnswersToAllPrompts) {
  const auto server = serve({}, slow_session());
  {
    HttpClient client(server->address());
    json body = {{"ignore_eos", true}};
    body["prompt"] = {"one two", "three"};
    client.send(http_request("POST", kCompletion, body.dump()));
    EXPECT_TRUE(soon([&] { return server->load().running == 2; }));
  }
  EXPECT_TRUE(soon([&] { return server->load().running == 0; }));
}

TEST(ServeNative, APromptThatIsRefusedEndsTheAnswersToTheOthers) {
  ServerOptions options;
  options.concurrency = 1;
  options.queue = 1;
  const auto server = serve(options, slow_session());
  json body = {{"ignore_eos", true}};
  body["prompt"] = {"one two", "three", "one", "two"};
  const HttpAnswer answer = post(server->address(), kCompletion, body);
  EXPECT_EQ(answer.status, 429) << answer.body;
  EXPECT_TRUE(soon([&] { return server->load().running == 0 && server->load().waiting == 0; }));
}

TEST(ServeNative, WithoutASeedOfItsOwnEachAnswerHasAnother) {
  ServerOptions options;
  options.seed = 7;
  const auto server = serve(options);
  json body = {{"prompt", "one two"}, {"n_predict", 2}, {"temperature", 1}};
  const auto seed = [&] { return answer_to(*server, body)["generation_settings"]["seed"]; };
  EXPECT_EQ(seed(), 7);
  body["seed"] = -1;
  EXPECT_NE(seed(), seed());
}

TEST(ServeNative, BiasesNameTokensByIdOrText) {
  const auto server = serve();
  const json text = post(server->address(), "/tokenize", {{"content", "q"}}).json()["tokens"];
  ASSERT_EQ(text.size(), 1u);
  const int id = text[0];
  for (const json& biases :
       {json{{id, 100}}, json{{"q", 100}}, json{{std::to_string(id), 100}}, json::array({{"q", 100.0}})}) {
    const json answer = answer_to(*server, {{"prompt", "one"}, {"n_predict", 3}, {"logit_bias", biases}});
    EXPECT_EQ(answer["content"], "qqq") << biases;
    EXPECT_EQ(answer["generation_settings"]["logit_bias"], (json{{{"token", id}, {"bias", 100.0}}})) << biases;
  }
  json body = {{"prompt", "one"}, {"n_predict", 1}, {"ignore_eos", true}, {"return_tokens", true}};
  const json first = answer_to(*server, body)["tokens"][0];
  body["logit_bias"] = json::array({json::array({first, false})});
  EXPECT_NE(answer_to(*server, body)["tokens"][0], first);
}

TEST(ServeNative, SettingsTellWhatHolds) {
  const auto server = serve();
  const json settings = answer_to(*server, {{"prompt", "one"},
                                            {"n_predict", 2},
                                            {"temperature", 0.5},
                                            {"seed", 11},
                                            {"stop", {"x"}},
                                            {"ignore_eos", true}})["generation_settings"];
  EXPECT_EQ(settings["n_predict"], 2);
  EXPECT_EQ(settings["temperature"], 0.5);
  EXPECT_EQ(settings["seed"], 11);
  EXPECT_EQ(settings["stop"], json({"x"}));
  EXPECT_EQ(settings["mirostat"], 0);
  ASSERT_FALSE(settings["logit_bias"].empty());
  for (const json& one : settings["logit_bias"]) EXPECT_TRUE(one["bias"].is_null()) << "they end no answer";
}

TEST(ServeNative, AnAnswerMayBeOfSomeMembersAlone) {
  const auto server = serve();
  const json body = {{"prompt", "one"},
                     {"n_predict", 2},
                     {"response_fields", {"content", "generation_settings/n_predict", "nothing", "stop/it"}}};
  const json answer = answer_to(*server, body);
  EXPECT_EQ(answer.size(), 2u) << answer;
  EXPECT_EQ(answer["generation_settings/n_predict"], 2);
}

TEST(ServeNative, WhatChangesNothingIsTakenAndWhatIsNotThereIsNamed) {
  const auto server = serve();
  const json quiet = {
      {"prompt", "one"},           {"n_predict", 1},      {"mirostat", 0},        {"mirostat_tau", 5},
      {"typical_p", 1.0},          {"dry_multiplier", 0}, {"dry_base", 1.75},     {"xtc_probability", 0},
      {"cache_prompt", false},     {"id_slot", -1},       {"repeat_last_n", 64},  {"seed", -1},
      {"timings_per_token", true}, {"n_keep", 3},         {"lora", json::array()}};
  answer_to(*server, quiet);
  for (const auto& [name, value] :
       {std::pair("mirostat", json(2)), std::pair("typical_p", json(0.5)), std::pair("dry_multiplier", json(0.8)),
        std::pair("samplers", json({"top_k"})), std::pair("post_sampling_probs", json(true)),
        std::pair("n_predict", json(0)), std::pair("n_probs", json(21)), std::pair("n_cmpl", json(2)),
        std::pair("logit_bias", json({{"q"}})), std::pair("response_fields", json("content")),
        std::pair("prompt", json({{"multimodal_data", {"x"}}})), std::pair("prompt", json(7)),
        std::pair("echo", json(true)), std::pair("spice", json(1))}) {
    json body = {{"prompt", "one"}, {"n_predict", 1}};
    body[name] = value;
    const HttpAnswer answer = post(server->address(), kCompletion, body);
    EXPECT_EQ(answer.status, 400) << name << ' ' << value << answer.body;
    EXPECT_TRUE(answer.json()["error"]["param"].get<std::string>().starts_with(name)) << answer.body;
  }
  const HttpAnswer last =
      post(server->address(), kCompletion, {{"prompt", "one"}, {"repeat_last_n", 64}, {"repeat_penalty", 1.1}});
  EXPECT_EQ(last.status, 400);
}

TEST(ServeNative, PathsHaveLlamaServersNamesToo) {
  const auto server = serve();
  const json body = {{"prompt", "one two"}, {"n_predict", 4}};
  EXPECT_EQ(lasting(answer_to(*server, body, "/completions")), lasting(answer_to(*server, body)));
  const json chat = {{"messages", {{{"role", "user"}, {"content", "hello"}}}}, {"max_tokens", 4}};
  EXPECT_EQ(answer_to(*server, chat, "/chat/completions")["choices"],
            answer_to(*server, chat, "/v1/chat/completions")["choices"]);
  EXPECT_EQ(ask(server->address(), "GET", "/models").json(), ask(server->address(), "GET", "/v1/models").json());
  EXPECT_EQ(ask(server->address(), "GET", "/v1/health").status, 200);
}

TEST(ServeNative, ChatsTellWhatLlamaServersTell) {
  const auto server = serve();
  json body = {{"messages", {{{"role", "user"}, {"content", "hello"}}}}, {"n_predict", 4}, {"ignore_eos", true}};
  const json answer = answer_to(*server, body, "/v1/chat/completions");
  EXPECT_EQ(answer["timings"]["predicted_n"], 4);
  EXPECT_TRUE(answer["system_fingerprint"].get<std::string>().starts_with("b"));
  EXPECT_FALSE(answer.contains("__verbose"));
  body.update({{"verbose", true}, {"cache_prompt", false}, {"id_slot", 0}, {"timings_per_token", true}});
  EXPECT_EQ(answer_to(*server, body, "/v1/chat/completions")["__verbose"]["prompt"],
            "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n");

  body.update({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  const auto events = events_of(post(server->address(), "/v1/chat/completions", body).body);
  EXPECT_TRUE(events.front()["choices"][0]["delta"]["content"].is_null());
  EXPECT_EQ(events[events.size() - 2]["timings"]["predicted_n"], 4);
}

TEST(ServeNative, TheModelMayHaveOtherNames) {
  ServerOptions options;
  options.names = {"small", "gpt-4"};
  const auto server = serve(options);
  for (const char* name : {"small", "gpt-4"})
    EXPECT_EQ(answer_to(*server, {{"prompt", "one"}, {"n_predict", 1}, {"model", name}})["model"], "small");
  EXPECT_EQ(post(server->address(), kCompletion, {{"prompt", "one"}, {"model", "gpt-3"}}).status, 404);
  EXPECT_EQ(ask(server->address(), "GET", "/v1/models").json()["data"][0]["aliases"], json({"gpt-4"}));
  EXPECT_EQ(ask(server->address(), "GET", "/v1/models/gpt-4").json()["id"], "small");
}

TEST(ServeNative, TemplatesAreAppliedWithOrWithoutTheBeginningOfAnAnswer) {
  const auto server = serve();
  json body = {{"messages", {{{"role", "user"}, {"content", "hello"}}}}};
  const std::string with = answer_to(*server, body, "/apply-template")["prompt"];
  body["add_generation_prompt"] = false;
  EXPECT_EQ(with, answer_to(*server, body, "/apply-template")["prompt"].get<std::string>() + "<|im_start|>assistant\n");
}

TEST(ServeNative, WhatAPromptTakesIsToldBeforehand) {
  const auto server = serve();
  const json chat = {{"messages", {{{"role", "user"}, {"content", "hello"}}}}, {"max_tokens", 1}};
  EXPECT_EQ(answer_to(*server, chat, "/v1/chat/completions/input_tokens")["input_tokens"],
            answer_to(*server, chat, "/v1/chat/completions")["usage"]["prompt_tokens"]);
}

TEST(ServeNative, TokensAreToldWithTheirPieces) {
  const auto server = serve();
  const json tokens = post(server->address(), "/tokenize", {{"content", "aü"}, {"with_pieces", true}}).json()["tokens"];
  ASSERT_EQ(tokens.size(), 3u);
  EXPECT_EQ(tokens[0]["piece"], "a");
  EXPECT_EQ(tokens[1]["piece"], json({0xC3}));
  EXPECT_EQ(tokens[2]["piece"], json({0xBC}));
}

// The model of the other tests with tokens for gaps: those of "{", "|" and "}", and "@" before a file's name.
Session fill_in_session() {
  const auto id_of = [](const char* text) {
    return static_cast<uint32_t>(served_session().tokenizer().encode(text, false, false).value().front());
  };
  TinyModelSpec spec = narrow_model(2);
  spec.context_length = 256;
  spec.edit_metadata = [&](gguf_context* file) {
    gguf_set_val_u32(file, "tokenizer.ggml.fim_pre_token_id", id_of("{"));
    gguf_set_val_u32(file, "tokenizer.ggml.fim_suf_token_id", id_of("|"));
    gguf_set_val_u32(file, "tokenizer.ggml.fim_mid_token_id", id_of("}"));
    gguf_set_val_u32(file, "tokenizer.ggml.fim_sep_token_id", id_of("@"));
  };
  SessionOptions options{.model = write_tiny_model(spec, temp_path("fill_in.gguf")), .threads = 1};
  return Session::open(options).value();
}

TEST(ServeNative, AGapIsFilledInTheWayOfTheVocabulary) {
  const Session session = fill_in_session();
  const auto server = serve({}, session);
  json body = {{"input_prefix", "before "}, {"input_suffix", " after"}, {"n_predict", 4}};
  EXPECT_EQ(answer_to(*server, body, kInfill)["prompt"], "@filename\n{before | after}");
  body["samplers"] = {"top_k", "top_p", "infill"};  // as editors send them
  body["t_max_predict_ms"] = 500;
  body["prompt"] = "half";
  body["input_extra"] = {{{"filename", "a.h"}, {"text", "int a;\n"}}};
  const json answer = answer_to(*server, body, kInfill);
  EXPECT_EQ(answer["prompt"], "@a.h\nint a;\n@filename\n{before half| after}");
  EXPECT_EQ(answer["content"], answer_to(*server, {{"prompt", answer["prompt"]}, {"n_predict", 4}})["content"]);
}

TEST(ServeNative, OfAGapWhatIsNearestIsKept) {
  const Session session = fill_in_session();
  const auto server = serve({}, session);
  std::string before, after;
  for (int i = 0; i < 300; ++i) before += static_cast<char>('0' + i % 10), after += static_cast<char>('a' + i % 26);
  const json body = {{"input_prefix", before}, {"input_suffix", after}, {"n_predict", 1}};
  const std::string prompt = answer_to(*server, body, kInfill)["prompt"];
  EXPECT_EQ(prompt, "@filename\n{" + before.substr(300 - 96) + "|" + after.substr(0, 32) + "}");
}

TEST(ServeNative, WhatOfAGapIsWrongIsNamed) {
  const Session session = fill_in_session();
  const auto server = serve({}, session);
  const json good = {{"input_prefix", "a"}, {"input_suffix", "b"}, {"n_predict", 1}};
  for (const auto& [name, value] :
       {std::pair("input_prefix", json()), std::pair("input_suffix", json(7)), std::pair("prompt", json(7)),
        std::pair("input_extra", json("x")), std::pair("input_extra", json::array({{{"filename", "x"}}})),
        std::pair("input_extra", json::array({{{"filename", 1}, {"text", "x"}}})),
        std::pair("input_extra", json::array({{{"filename", "x"}, {"text", 1}}}))}) {
    json body = good;
    body[name] = value;
    const HttpAnswer answer = post(server->address(), kInfill, body);
    EXPECT_EQ(answer.status, 400) << name << ' ' << value << answer.body;
    EXPECT_TRUE(answer.json()["error"]["param"].get<std::string>().starts_with(name)) << answer.body;
  }
  const HttpAnswer without = post(serve()->address(), kInfill, good);
  EXPECT_EQ(without.status, 400);
  EXPECT_NE(without.body.find("has no tokens"), std::string::npos) << without.body;
}

}  // namespace
}  // namespace sluice::test

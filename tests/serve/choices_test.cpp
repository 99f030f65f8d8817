// Several answers to one request, and how likely their tokens were.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "serve/http_client.h"
#include "serve/served.h"

namespace sluice::test {
namespace {

using nlohmann::json;

const json kMessages = {{{"role", "user"}, {"content", "tell me of one and two and three and four"}}};

std::string text_of(const json& choice) {
  return choice.contains("text") ? choice["text"] : choice["message"]["content"];
}

// What pieces of a stream come to, by choice: text and finish_reason, logprobs in one list.
struct Pieces {
  std::map<int, json> choices;
  json usage;
};

void append(json& all, const json& more) {
  for (const auto& [name, list] : more.items())
    for (const json& one : list.is_array() ? list : json::array()) all[name].push_back(one);
}

Pieces streamed(const std::string& address, const char* path, json body) {
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  Pieces all;
  const HttpAnswer answer = post(address, path, body);
  EXPECT_EQ(answer.status, 200) << answer.body;
  for (const json& event : events_of(answer.body)) {
    if (event.is_null()) continue;
    if (!event["usage"].is_null()) all.usage = event["usage"];
    for (const json& choice : event["choices"]) {
      json& one = all.choices.try_emplace(choice["index"].get<int>(), json::object()).first->second;
      one["text"] = one.value("text", "") + text_of_piece(choice);
      if (!choice["logprobs"].is_null()) append(one["logprobs"], choice["logprobs"]);
      if (!choice["finish_reason"].is_null()) one["finish_reason"] = choice["finish_reason"];
    }
  }
  return all;
}

TEST(ServeChoices, EachIsWhatItsOwnSeedGetsAlone) {
  ServerOptions options;
  options.concurrency = 2;  // so that some may wait
  const auto server = serve(options);
  for (const char* path : {kChat, kCompletions}) {
    json body = {{"max_tokens", 40}, {"temperature", 1.0}, {"seed", 5}, {"n", 4}, {"ignore_eos", true}};
    if (path == kChat)
      body["messages"] = kMessages;
    else
      body["prompt"] = "one two three four five six seven eight";
    const json answer = post(server->address(), path, body).json();
    ASSERT_EQ(answer["choices"].size(), 4u) << answer;
    const Pieces pieces = streamed(server->address(), path, body);
    ASSERT_EQ(pieces.choices.size(), 4u);
    for (int i = 0; i < 4; ++i) {
      json alone = body;
      alone["n"] = 1;
      alone["seed"] = 5 + i;
      const Expected expected = expected_of(alone);
      const json& choice = answer["choices"][static_cast<size_t>(i)];
      EXPECT_EQ(choice["index"], i);
      EXPECT_EQ(text_of(choice), expected.text);
      EXPECT_EQ(choice["finish_reason"], expected.finish);
      EXPECT_EQ(pieces.choices.at(i)["text"], expected.text);
      EXPECT_EQ(pieces.choices.at(i)["finish_reason"], expected.finish);
    }
    for (const json& usage : {answer["usage"], pieces.usage}) {
      EXPECT_EQ(usage["completion_tokens"], 160);
      EXPECT_EQ(usage["total_tokens"], 160 + usage["prompt_tokens"].get<int>());
      EXPECT_EQ(usage["sluice"]["seed"], 5);
    }
  }
}

TEST(ServeChoices, ThePromptIsComputedOnce) {
  const auto server = serve();
  const json body = {{"messages", kMessages}, {"max_tokens", 5}, {"temperature", 1.0}, {"n", 3}};
  const int prompt = post(server->address(), kChat, body).json()["usage"]["prompt_tokens"];
  const std::string page = ask(server->address(), "GET", "/metrics").body, name = "vllm:prefix_cache_hits_total{";
  const size_t at = page.rfind(name);
  ASSERT_NE(at, std::string::npos);
  EXPECT_GE(std::stod(page.substr(page.find("} ", at) + 2)), 2 * (prompt - 1));
}

TEST(ServeChoices, WhoGoesAwayEndsAllOfThem) {
  ServerOptions options;
  options.concurrency = 1;
  const auto server = serve(options, slow_session());
  const auto soon = [&](size_t running, size_t waiting) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto reached = [&] { return server->load().running == running && server->load().waiting == waiting; };
    while (!reached() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return reached();
  };
  {
    HttpClient client(server->address());
    const json body = {{"prompt", "one two"}, {"ignore_eos", true}, {"n", 3}};
    client.send(http_request("POST", kCompletions, body.dump()));
    EXPECT_TRUE(soon(1, 2));
  }
  EXPECT_TRUE(soon(0, 0));
}

std::string text_of_bytes(const json& content) {
  std::string text;
  for (const json& one : content)
    for (const json& byte : one["bytes"]) text += static_cast<char>(byte.get<int>());
  return text;
}

TEST(ServeLogprobs, AreTheSameByEveryMethodWholeAndStreamed) {
  const auto server = serve();
  for (const double temperature : {0.0, 1.0}) {
    json common = {{"max_tokens", 40}, {"temperature", temperature}, {"seed", 3}, {"ignore_eos", true}};
    json chat = common, text = common;
    chat.update({{"messages", kMessages}, {"logprobs", true}, {"top_logprobs", 5}, {"presence_penalty", temperature}});
    text.update({{"prompt", "one two one two one two"}, {"logprobs", 2}, {"n", 2}});
    for (auto& [path, body] : {std::pair(kChat, chat), std::pair(kCompletions, text)}) {
      json plain;
      for (const char* method : {"ar", "surge", "specpipe", "specinfer"}) {
        json by = body;
        by["method"] = method;
        const json choices = post(server->address(), path, by).json()["choices"];
        if (plain.is_null()) plain = choices;
        EXPECT_EQ(choices, plain) << method;
        const Pieces pieces = streamed(server->address(), path, by);
        for (size_t i = 0; i < plain.size(); ++i) {
          json wanted = plain[i]["logprobs"];
          wanted.erase("refusal");
          EXPECT_EQ(pieces.choices.at(static_cast<int>(i)).at("logprobs"), wanted) << method;
        }
      }
    }
  }
}

TEST(ServeLogprobs, OfChatsAreAListWithAnEntryAToken) {
  const auto server = serve();
  const json body = {
      {"messages", kMessages}, {"max_tokens", 30}, {"logprobs", true}, {"top_logprobs", 4}, {"ignore_eos", true}};
  const json answer = post(server->address(), kChat, body).json();
  const json& content = answer["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 30u);
  for (const json& one : content) {
    ASSERT_EQ(one["top_logprobs"].size(), 4u);
    EXPECT_EQ(one["top_logprobs"][0]["token"], one["token"]) << "greedy: the likeliest";
    EXPECT_EQ(one["top_logprobs"][0]["logprob"], one["logprob"]);
    double mass = 0, before = 0;
    for (const json& top : one["top_logprobs"]) {
      EXPECT_LE(top["logprob"].get<double>(), before);
      before = top["logprob"];
      mass += std::exp(before);
    }
    EXPECT_LE(mass, 1.00001);
  }
  json alone = body;
  alone.erase("top_logprobs");
  const json fewer = post(server->address(), kChat, alone).json()["choices"][0]["logprobs"]["content"];
  for (size_t i = 0; i < fewer.size(); ++i) {
    EXPECT_EQ(fewer[i]["logprob"], content[i]["logprob"]);
    EXPECT_EQ(fewer[i]["top_logprobs"], json::array());
  }
  alone["logprobs"] = false;
  EXPECT_TRUE(post(server->address(), kChat, alone).json()["choices"][0]["logprobs"].is_null());
}

TEST(ServeLogprobs, BytesAreThoseOfTheText) {
  const auto server = serve();
  for (int seed = 0; seed < 20; ++seed) {
    const json body = {{"messages", kMessages}, {"max_tokens", 20}, {"logprobs", true},
                       {"temperature", 1.0},    {"seed", seed},     {"ignore_eos", true}};
    const json choice = post(server->address(), kChat, body).json()["choices"][0];
    const std::string bytes = text_of_bytes(choice["logprobs"]["content"]), text = text_of(choice);
    const bool whole = text.find("\xEF\xBF\xBD") == text.npos;  // no character was cut in two
    EXPECT_TRUE(!whole || bytes == text) << bytes << "\n" << text;
  }
}

TEST(ServeLogprobs, ChangeWithNoParameterOfTheDraw) {
  const auto server = serve();
  json body = {{"prompt", "one two"}, {"max_tokens", 1}, {"logprobs", 20}, {"ignore_eos", true}};
  const json plain = post(server->address(), kCompletions, body).json()["choices"][0]["logprobs"];
  body.update({{"temperature", 1.5}, {"top_k", 1}, {"seed", 9}});
  const json warm = post(server->address(), kCompletions, body).json()["choices"][0]["logprobs"];
  EXPECT_EQ(warm, plain) << "the same token, of one candidate";
  body.update({{"temperature", 0}, {"logit_bias", {{"7", 100}}}});
  const json biased = post(server->address(), kCompletions, body).json()["choices"][0]["logprobs"];
  const std::string token = biased["tokens"][0];
  for (const auto& [name, logprob] : plain["top_logprobs"][0].items())
    EXPECT_EQ(biased["top_logprobs"][0][name], logprob) << name;
  EXPECT_EQ(biased["top_logprobs"][0][token], biased["token_logprobs"][0]);
}

TEST(ServeLogprobs, OfTextsAreListsSideBySide) {
  const auto server = serve();
  const json body = {{"prompt", "one two"}, {"max_tokens", 12}, {"logprobs", 0}, {"ignore_eos", true}};
  const json choice = post(server->address(), kCompletions, body).json()["choices"][0];
  const json& logprobs = choice["logprobs"];
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    EXPECT_EQ(logprobs[list].size(), 12u) << list;
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  for (const json& top : logprobs["top_logprobs"]) EXPECT_EQ(top.size(), 1u) << "the token itself";
}

}  // namespace
}  // namespace sluice::test

// The live page, and what it is told of the engine at work.
#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <map>
#include <memory>
#include <regex>
#include <thread>

#include "serve/family.h"
#include "serve/http_client.h"
#include "serve/live_streams.h"
#include "serve/policy.h"
#include "serve/served.h"

namespace sluice::test {
namespace {

using nlohmann::json;

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t at = text.rfind(begin);
  return at == text.npos ? "" : text.substr(at + begin.size(), text.find(end, at) - at - begin.size());
}

std::string base64_sha256(const std::string& text) {
  unsigned char digest[32], base64[45];
  EVP_Digest(text.data(), text.size(), digest, nullptr, EVP_sha256(), nullptr);
  EVP_EncodeBlock(base64, digest, sizeof digest);
  return reinterpret_cast<const char*>(base64);
}

TEST(Live, ThePageIsOneDocumentAndItsPolicyForbidsAllElse) {
  ServerOptions options;
  options.api_key = "a-key-of-ours";
  const auto server = serve(options);
  const HttpAnswer page = ask(server->address(), "GET", "/");
  ASSERT_EQ(page.status, 200) << "who has no key yet must be able to give it";
  EXPECT_NE(page.head.find("Content-Type: text/html; charset=utf-8"), std::string::npos) << page.head;
  EXPECT_NE(page.head.find("X-Content-Type-Options: nosniff"), std::string::npos);
  const std::string policy = between(page.head, "Content-Security-Policy: ", "\n");
  EXPECT_TRUE(policy.starts_with("default-src 'none'; ")) << policy;
  for (const char* part :
       {"connect-src 'self'", "img-src data:", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"})
    EXPECT_NE(policy.find(part), policy.npos) << policy;
  for (const char* loose : {"unsafe", "*", "http:", "https:", "blob:"})
    EXPECT_EQ(policy.find(loose), policy.npos) << policy;
  for (const char* tag : {"script", "style"}) {
    const std::string text = between(page.body, "<" + std::string(tag) + ">", "</" + std::string(tag) + ">");
    EXPECT_NE(text, "");
    EXPECT_NE(policy.find("'sha256-" + base64_sha256(text) + "'"), policy.npos) << tag;
  }
  const std::regex elsewhere(R"((src|href|action)="?(https?:|//)|@import|url\((?!\$\{))");
  EXPECT_FALSE(std::regex_search(page.body, elsewhere));
}

TEST(Live, ThePageMakesNoMarkupOfWhatItIsTold) {
  const std::string page = ask(serve()->address(), "GET", "/").body;
  for (const char* dangerous : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("})
    EXPECT_EQ(page.find(dangerous), page.npos) << dangerous;
}

TEST(Live, ATimelineHasAPlaceForItsData) {
  const HttpAnswer timeline = ask(serve()->address(), "GET", "/timeline");
  EXPECT_EQ(timeline.status, 200);
  EXPECT_NE(timeline.head.find("Content-Type: text/plain"), std::string::npos) << "it is no page before that";
  EXPECT_NE(timeline.body.find("@TRACE@"), std::string::npos);
}

// What a page is told from before `happens` until the server drains.
template <class Happens>
std::vector<json> watched(Server& server, Happens happens, const std::string& headers = "") {
  HttpClient page(server.address());
  page.send(http_request("GET", "/live", "", headers));
  page.read_at_least(300);  // its first event
  happens();
  std::this_thread::sleep_for(3 * policy::kTellSteps);
  server.drain(20);
  const HttpAnswer answer = page.read();
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(answer.head.find("Content-Type: text/event-stream"), std::string::npos);
  return events_of(answer.body);
}

TEST(Live, APageIsToldWhatTheEngineDoesAndNothingOfTheTexts) {
  const auto server = serve({}, slow_session());
  const json body = {{"prompt", "one two one two one two"}, {"max_tokens", 9}, {"ignore_eos", true}};
  std::string text;
  const auto events =
      watched(*server, [&] { text = text_of_answer(post(server->address(), kCompletions, body).json()); });
  ASSERT_GE(events.size(), 3u);
  EXPECT_EQ(events[0]["type"], "hello");
  EXPECT_EQ(events[0]["stages"], 2);
  EXPECT_EQ(events[0]["cuts"][0][0], 0);
  EXPECT_EQ(events[0]["cuts"][1][1], 4);
  int tokens = 0;
  std::map<int64_t, int> open;  // by batch, rows of which nothing is known yet
  std::map<int, int> spans;     // by lane
  json figures;
  for (const json& event : events) {
    EXPECT_EQ(event.dump().find("one two"), std::string::npos) << event;
    EXPECT_EQ(event.dump().find(text), std::string::npos) << event;
    if (event["type"] == "figures") figures = event;
    if (event["type"] != "steps") continue;
    EXPECT_EQ(event["lost"], 0);
    for (const json& batch : event["batches"]) open[batch[0].get<int64_t>()] = batch[4].get<int>();
    for (const json& span : event["spans"]) {
      EXPECT_TRUE(open.contains(span[1].get<int64_t>()));
      EXPECT_LE(span[2].get<double>(), span[3].get<double>());
      ++spans[span[0].get<int>()];
    }
    for (const json& fate : event["fates"]) EXPECT_GE(open[fate[0].get<int64_t>()] -= fate[2].get<int>(), 0) << event;
    for (const json& came : event["tokens"]) tokens += came[2].get<int>();
  }
  EXPECT_EQ(tokens, 9);
  EXPECT_EQ(spans.size(), 2u);
  EXPECT_EQ(figures["busy"].size(), 2u);
  EXPECT_GT(figures["cells"], 0);
  EXPECT_GT(figures["memory"], 1'000'000);
}

TEST(Live, FiguresAreThoseOfAllAnswers) {
  const auto server = serve();
  const json body = {{"prompt", "one two one two"}, {"max_tokens", 20}, {"ignore_eos", true}};
  const auto events = watched(*server, [&] {
    for (int i = 0; i < 3; ++i) post(server->address(), kCompletions, body);
    std::this_thread::sleep_for(2 * policy::kTellFiguresEvery * policy::kTellSteps);
  });
  const auto last =
      std::find_if(events.rbegin(), events.rend(), [](const json& event) { return event["type"] == "figures"; });
  ASSERT_NE(last, events.rend());
  EXPECT_EQ((*last)["tokens"], 60);
  EXPECT_EQ((*last)["running"], 0);
  EXPECT_EQ((*last)["waiting"], 0);
  EXPECT_EQ((*last)["trouble"], "");
}

TEST(Live, PagesNeedTheKey) {
  ServerOptions options;
  options.api_key = "a-key-of-ours";
  const auto server = serve(options);
  EXPECT_EQ(ask(server->address(), "GET", "/live").status, 401);
  EXPECT_EQ(ask(server->address(), "GET", "/live", "", "Authorization: Bearer another\r\n").status, 401);
  EXPECT_EQ(ask(server->address(), "POST", "/live", "{}", "x-api-key: a-key-of-ours\r\n").status, 405);
  const auto events = watched(
      *server, [] {}, "x-api-key: a-key-of-ours\r\n");
  EXPECT_EQ(events.at(0)["type"], "hello");
}

TEST(Live, PagesThatWatchAreNoWorkAndEndWithTheServer) {
  auto server = serve();
  HttpClient page(server->address());
  page.send(http_request("GET", "/live"));
  page.read_at_least(300);
  EXPECT_TRUE(soon([&] { return server->at_work() == 0; }));
  server.reset();
  EXPECT_EQ(page.read().status, 200);
  EXPECT_TRUE(page.ended());
}

TEST(Live, ADrainingServerIsNotWatched) {
  const auto server = serve();
  server->drain(0);
  const HttpAnswer late = ask(server->address(), "GET", "/live");
  EXPECT_EQ(late.status, 503);
  EXPECT_EQ(late.json()["error"]["code"], "draining");
  EXPECT_EQ(ask(server->address(), "GET", "/").status, 200);
}

TEST(Live, NoMorePagesWatchThanMayAndWhoLeavesMakesRoom) {
  const auto server = serve();
  std::vector<std::unique_ptr<HttpClient>> pages;
  const auto open = [&] {
    pages.push_back(std::make_unique<HttpClient>(server->address()));
    pages.back()->send(http_request("GET", "/live"));
  };
  for (size_t i = 0; i < policy::kMostWatching; ++i) open();
  for (const auto& page : pages) page->read_at_least(300);
  EXPECT_EQ(ask(server->address(), "GET", "/live").status, 429);
  pages.pop_back();
  EXPECT_TRUE(soon([&] {
    HttpClient next(server->address());
    next.send(http_request("GET", "/live"));
    next.read_at_least(12);
    next.end_of_sending();  // it leaves, if it was let in
    return next.read().status == 200;
  }));
}

// A client that takes nothing as long as it is told to.
class Slow : public Kept {
 public:
  void stream(std::string events) override { all += events; }
  void end_stream() override { ended = true; }
  size_t untaken() const override { return waits; }
  std::string all;
  size_t waits = 0;
  bool ended = false;
};

TEST(Live, ASlowPageLosesEventsAndIsToldHowMany) {
  LiveStreams streams(2);
  const auto quick = std::make_shared<Slow>(), slow = std::make_shared<Slow>();
  EXPECT_TRUE(streams.add(quick, "first\n\n"));
  EXPECT_TRUE(streams.add(slow, "first\n\n"));
  EXPECT_FALSE(streams.add(std::make_shared<Slow>(), "first\n\n"));
  slow->waits = policy::kMostUntaken + 1;
  for (int i = 0; i < 100; ++i) streams.tell("x");
  EXPECT_EQ(quick->all, "first\n\n" + std::string(100, 'x'));
  EXPECT_EQ(slow->all, "first\n\n");
  slow->waits = 0;
  streams.tell("y");
  EXPECT_EQ(slow->all, "first\n\nevent: lost\ndata: {\"type\":\"lost\",\"events\":100}\n\ny");
  streams.remove(quick);
  EXPECT_EQ(streams.size(), 1u);
  streams.end();
  EXPECT_TRUE(slow->ended);
  EXPECT_FALSE(quick->ended) << "it has gone";
}

TEST(Live, ChunksTellHowManyTokensCameAtOnce) {
  const auto server = serve();
  for (const char* method : {"ar", "specpipe", "surge"})
    for (const char* path : {kChat, kCompletions}) {
      json body = {{"max_tokens", 60}, {"ignore_eos", true}, {"stream", true}, {"method", method}};
      body["stream_options"] = {{"include_usage", true}};
      if (path == kChat)
        body["messages"] = {{{"role", "user"}, {"content", "one two one two one"}}};
      else
        body["prompt"] = "one two one two one";
      int tokens = 0, batches = 0, most = 0;
      json usage;
      for (const json& event : events_of(post(server->address(), path, body).body)) {
        if (event.is_null()) continue;
        if (event.contains("usage") && !event["usage"].is_null()) usage = event["usage"];
        if (!event.contains("sluice")) continue;
        const int at_once = event["sluice"]["tokens"].get<int>();
        tokens += at_once;
        batches += event["sluice"]["batches"].get<int>();
        most = std::max(most, at_once);
        EXPECT_GT(at_once, 0);
        EXPECT_GE(event["sluice"]["request"], 0);
      }
      EXPECT_EQ(tokens, usage["completion_tokens"]) << method << path;
      EXPECT_LE(batches, tokens);
      EXPECT_TRUE(std::string(method) != "ar" || batches == tokens) << batches;
    }
}

TEST(Live, PropsTellWhatARequestMayChoose) {
  const auto server = serve();
  const json methods = ask(server->address(), "GET", "/props").json()["sluice"]["methods"];
  std::map<std::string, json> by_name;
  for (const json& method : methods) by_name[method["name"]] = method;
  for (const char* there : {"auto", "ar", "surge", "specpipe"}) EXPECT_TRUE(by_name.contains(there)) << there;
  EXPECT_FALSE(by_name.contains("p-eagle")) << "there is no head";
  EXPECT_EQ(by_name["surge"]["width"], true);
  EXPECT_EQ(by_name["ar"]["width"], false);
  for (const auto& [name, method] : by_name)
    for (const char* option : {"width", "depth"}) {
      json body = {{"prompt", "one"}, {"max_tokens", 1}, {"method", name}, {option, 4}};
      EXPECT_EQ(post(server->address(), kCompletions, body).status == 200, method[option].get<bool>())
          << name << option;
    }
}

}  // namespace
}  // namespace sluice::test

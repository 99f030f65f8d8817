// What a server tells of itself: metrics, settings, who is at work.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "serve/http_client.h"
#include "serve/served.h"
#include "serve/status_pages.h"

namespace sluice::test {
namespace {

using nlohmann::json;

struct Metrics {
  std::map<std::string, double> samples;  // by name and labels, without the model's
  std::map<std::string, std::string> types;
};

// Text of Prometheus' format, in which every family is described before its samples.
Metrics metrics_of(const std::string& text, const std::string& model) {
  Metrics all;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, second, third, fourth;
    words >> first;
    if (first == "#") {
      words >> second >> third >> fourth;
      const bool fresh = second != "TYPE" || all.types.emplace(third, fourth).second;
      EXPECT_TRUE(fresh) << third << " twice";
      continue;
    }
    const std::string label = "{model_name=\"" + model + "\"";
    const size_t begin = line.find(label), end = line.rfind("} ");
    if (begin == line.npos || end == line.npos) {
      ADD_FAILURE() << line;
      continue;
    }
    std::string labels = line.substr(begin + label.size(), end - begin - label.size());
    if (labels.starts_with(',')) labels.erase(0, 1);
    const std::string name = line.substr(0, begin) + (labels.empty() ? "" : "{" + labels + "}");
    EXPECT_TRUE(all.samples.emplace(name, std::stod(line.substr(end + 2))).second) << name << " twice";
    std::string family = line.substr(0, begin);
    for (const char* suffix : {"_bucket", "_sum", "_count"})
      if (family.ends_with(suffix) && all.types[family.substr(0, family.rfind('_'))] == "histogram")
        family = family.substr(0, family.rfind('_'));
    EXPECT_TRUE(all.types.contains(family)) << line;
    EXPECT_TRUE(all.types[family] != "counter" || family.ends_with("_total")) << line;
  }
  return all;
}

Metrics metrics(const Server& server) {
  const HttpAnswer answer = ask(server.address(), "GET", "/metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_NE(answer.head.find("Content-Type: text/plain; version=0.0.4"), std::string::npos) << answer.head;
  return metrics_of(answer.body, served_session().model().hparams().name);
}

TEST(ServeStatus, MetricsAddUpWhatAnswersTell) {
  const auto server = serve();
  int64_t prompt = 0, answers = 0, cached = 0, drafted = 0, accepted = 0;
  json body = {{"prompt", "one two one two one two one two one two"}, {"max_tokens", 40}, {"ignore_eos", true}};
  for (const char* method : {"surge", "ar", "surge"}) {
    body["method"] = method;
    const json usage = post(server->address(), kCompletions, body).json()["usage"];
    prompt += usage["prompt_tokens"].get<int64_t>();
    answers += usage["completion_tokens"].get<int64_t>();
    cached += usage["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
    drafted += usage["sluice"]["drafted"].get<int64_t>();
    accepted += usage["sluice"]["accepted"].get<int64_t>();
  }
  EXPECT_GT(cached, 0);
  const Metrics told = metrics(*server);
  const auto expect = [&](const char* name, double value) { EXPECT_EQ(told.samples.at(name), value) << name; };
  expect("vllm:prompt_tokens_total", static_cast<double>(prompt));
  expect("vllm:generation_tokens_total", static_cast<double>(answers));
  expect("vllm:prefix_cache_hits_total", static_cast<double>(cached));
  expect("vllm:spec_decode_num_draft_tokens_total", static_cast<double>(drafted));
  expect("vllm:spec_decode_num_accepted_tokens_total", static_cast<double>(accepted));
  expect("vllm:num_requests_running", 0);
  expect("vllm:num_requests_waiting", 0);
  expect("vllm:kv_cache_usage_perc", 0);
  expect("vllm:request_success_total{finished_reason=\"length\"}", 3);
  expect("vllm:time_to_first_token_seconds_count", 3);
  expect("vllm:time_to_first_token_seconds_bucket{le=\"+Inf\"}", 3);
  expect("vllm:inter_token_latency_seconds_count", static_cast<double>(answers - 3));
  expect("vllm:e2e_request_latency_seconds_count", 3);
  expect("sluice_ready", 1);
  EXPECT_GT(told.samples.at("sluice_kv_cells_held"), 40);
  EXPECT_GT(told.samples.at("sluice_batches_total"), 40);
  EXPECT_GT(told.samples.at("sluice_stage_busy_seconds_total{stage=\"1\"}"), 0);
  EXPECT_GT(told.samples.at("process_resident_memory_bytes"), 1e6);
}

TEST(ServeStatus, BucketsOfAHistogramHoldAllBelowThem) {
  EngineReport report;
  report.first_token.saw(0.0005);
  report.first_token.saw(0.005);  // a bound belongs to what is below it
  report.first_token.saw(0.3, 2);
  report.first_token.saw(1e9);
  const Metrics told = metrics_of(metrics_page(report, "m"), "m");
  const auto bucket = [&](const std::string& bound) {
    return told.samples.at("vllm:time_to_first_token_seconds_bucket{le=\"" + bound + "\"}");
  };
  EXPECT_EQ(bucket("0.001"), 1);
  EXPECT_EQ(bucket("0.005"), 2);
  EXPECT_EQ(bucket("0.25"), 2);
  EXPECT_EQ(bucket("0.5"), 4);
  EXPECT_EQ(bucket("2560"), 4);
  EXPECT_EQ(bucket("+Inf"), 5);
  EXPECT_EQ(told.samples.at("vllm:time_to_first_token_seconds_sum"), 0.0005 + 0.005 + 0.6 + 1e9);
}

TEST(ServeStatus, NamesOfModelsAreQuoted) {
  const std::string page = metrics_page({}, "a \"b\"\\c\nd");
  EXPECT_NE(page.find("vllm:num_requests_running{model_name=\"a \\\"b\\\"\\\\c\\nd\"} 0\n"), std::string::npos) << page;
}

TEST(ServeStatus, WhoIsAtWorkAndWhoWaits) {
  ServerOptions options;
  options.concurrency = 1;
  const auto server = serve(options, slow_session());
  const json body = {{"prompt", "one two"}, {"ignore_eos", true},  {"stream", true},
                     {"method", "ar"},      {"temperature", 0.75}, {"seed", 7}};
  HttpClient first(server->address()), second(server->address());
  first.send(http_request("POST", kCompletions, body.dump()));
  second.send(http_request("POST", kCompletions, body.dump()));
  ASSERT_TRUE(soon([&] { return server->load().running == 1 && server->load().waiting == 1; }));
  first.read_at_least(600);  // some tokens
  const Metrics told = metrics(*server);
  EXPECT_EQ(told.samples.at("vllm:num_requests_running"), 1);
  EXPECT_EQ(told.samples.at("vllm:num_requests_waiting"), 1);
  EXPECT_GT(told.samples.at("vllm:kv_cache_usage_perc"), 0);
  EXPECT_LT(told.samples.at("vllm:kv_cache_usage_perc"), 0.5);
  const json slots = ask(server->address(), "GET", "/slots").json();
  ASSERT_EQ(slots.size(), 1u) << slots;
  EXPECT_EQ(slots[0]["is_processing"], true);
  EXPECT_EQ(slots[0]["n_ctx"], slow_session().options().context);
  EXPECT_EQ(slots[0]["params"]["temperature"], 0.75);
  EXPECT_EQ(slots[0]["params"]["seed"], 7);
  EXPECT_EQ(slots[0]["sluice"]["method"], "ar");
  EXPECT_GT(slots[0]["next_token"][0]["n_decoded"], 0);
  EXPECT_GT(slots[0]["next_token"][0]["n_remain"], 0);
  EXPECT_EQ(slots.dump().find("one two"), std::string::npos) << "what is asked is nobody's business";
}

TEST(ServeStatus, SlotsAreThereWhenNobodyIsAtWork) {
  ServerOptions options;
  options.concurrency = 3;
  const auto server = serve(options);
  const json slots = ask(server->address(), "GET", "/slots").json();
  ASSERT_EQ(slots.size(), 3u);
  for (const json& slot : slots) EXPECT_EQ(slot["is_processing"], false);
}

TEST(ServeStatus, PropsTellWhatThereIs) {
  ServerOptions options;
  options.concurrency = 3;
  options.max_tokens = 77;
  const auto server = serve(options);
  const json props = ask(server->address(), "GET", "/props").json();
  EXPECT_EQ(props["total_slots"], 3);
  EXPECT_EQ(props["model_alias"], served_session().model().hparams().name);
  EXPECT_EQ(props["model_path"], "served.gguf");
  EXPECT_EQ(props["chat_template"], served_session().model().chat_template());
  EXPECT_EQ(props["default_generation_settings"]["n_ctx"], served_session().options().context);
  EXPECT_EQ(props["default_generation_settings"]["params"]["max_tokens"], 77);
  EXPECT_EQ(props["modalities"]["vision"], false);
}

TEST(ServeStatus, PagesAreForWhoHasTheKey) {
  ServerOptions options;
  options.api_key = "a-key-of-ours";
  const auto server = serve(options);
  for (const char* page : {"/metrics", "/slots", "/props"}) {
    EXPECT_EQ(ask(server->address(), "GET", page).status, 401) << page;
    EXPECT_EQ(ask(server->address(), "GET", page, "", "Authorization: Bearer a-key-of-ours\r\n").status, 200) << page;
    EXPECT_EQ(ask(server->address(), "POST", page, "{}", "Authorization: Bearer a-key-of-ours\r\n").status, 405);
  }
}

}  // namespace
}  // namespace sluice::test

#include "serve/status_pages.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace sluice {

namespace {

using Json = nlohmann::ordered_json;

// As a label's value is written.
std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    out += c == '\n' ? "\\n" : std::string(1, c);
  }
  return out + "\"";
}

class MetricsPage {
 public:
  explicit MetricsPage(const std::string& model) : model_("model_name=" + quoted(model)) {}

  void family(const std::string& name, const char* type, const char* help) {
    name_ = name;
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <class Number>
  void sample(Number value, const std::string& labels = "", const char* suffix = "") {
    text_ += fmt::format("{}{}{{{}{}}} {}\n", name_, suffix, model_, labels.empty() ? "" : "," + labels, value);
  }
  template <class Number>
  void gauge(const std::string& name, const char* help, Number value) {
    family(name, "gauge", help);
    sample(value);
  }
  template <class Number>
  void counter(const std::string& name, const char* help, Number value) {
    family(name, "counter", help);
    sample(value);
  }
  void histogram(const std::string& name, const char* help, const Histogram& values) {
    family(name, "histogram", help);
    uint64_t n = 0;
    for (size_t i = 0; i < values.bounds.size(); ++i)
      sample(n += values.counts[i], fmt::format("le=\"{}\"", values.bounds[i]), "_bucket");
    sample(n += values.counts.back(), "le=\"+Inf\"", "_bucket");
    sample(values.sum, "", "_sum");
    sample(n, "", "_count");
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string model_, name_, text_;
};

double share(size_t part, size_t all) { return all == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(all); }

void add_requests(MetricsPage& page, const EngineReport& report) {
  page.gauge("vllm:num_requests_running", "Requests that are answered now.", report.running);
  page.gauge("vllm:num_requests_waiting", "Requests that wait for cells of the KV cache.", report.waiting);
  page.family("vllm:request_success_total", "counter", "Answers that have come to their end, by why.");
  for (const Finish finish : {Finish::kStop, Finish::kLength})
    page.sample(report.ended[static_cast<size_t>(finish)], fmt::format("finished_reason=\"{}\"", name(finish)));
  page.family("sluice_requests_ended_total", "counter", "Requests that have ended, by how.");
  for (const auto& [name, finish] : kFinishes)
    if (finish != Finish::kNone)
      page.sample(report.ended[static_cast<size_t>(finish)], fmt::format("finish=\"{}\"", name));
  page.counter("sluice_requests_refused_total", "Requests that were refused because too many waited.", report.refused);
  page.histogram("vllm:time_to_first_token_seconds", "From a request's arrival at the engine to its first token.",
                 report.first_token);
  page.histogram("vllm:inter_token_latency_seconds",
                 "From a token to the next one; of tokens that come together each counts with its share.",
                 report.next_token);
  page.histogram("vllm:e2e_request_latency_seconds", "From a request's arrival at the engine to its end.",
                 report.whole);
}

void add_tokens(MetricsPage& page, const Counts& counts) {
  page.counter("vllm:prompt_tokens_total", "Tokens of prompts.", counts.prompt_tokens);
  page.counter("vllm:generation_tokens_total", "Tokens of answers.", counts.answer_tokens);
  page.counter("vllm:prefix_cache_queries_total", "Tokens of prompts that were looked for among others.",
               counts.prompt_tokens);
  page.counter("vllm:prefix_cache_hits_total", "Tokens of prompts that others had computed.", counts.reused_tokens);
  page.counter("vllm:spec_decode_num_drafts_total", "Batches that brought tokens of a request.", counts.verifications);
  page.counter("vllm:spec_decode_num_draft_tokens_total", "Guesses that entered the target.", counts.drafted);
  page.counter("vllm:spec_decode_num_accepted_tokens_total", "Guesses that came true.", counts.accepted);
  page.counter("sluice_flushes_total", "Tokens that no guess had named.", counts.flushes);
  page.counter("sluice_replays_total", "Times that a request went on from its tokens after hosts were lost.",
               counts.replays);
}

void add_engine(MetricsPage& page, const EngineReport& report) {
  page.gauge("vllm:kv_cache_usage_perc", "Share of the KV cache that running requests have filled, 0 to 1.",
             share(report.cells_running, report.cells));
  page.gauge("sluice_kv_cells", "Cells of the target's KV cache.", report.cells);
  page.gauge("sluice_kv_cells_held", "Of these, those that hold a token, for requests that have ended too.",
             report.cells_held);
  page.gauge("sluice_ready", "Whether requests can be answered.", report.trouble.empty() ? 1 : 0);
  page.counter("sluice_batches_total", "Batches that the target was given.", report.batches);
  page.family("sluice_stage_busy_seconds_total", "counter", "Seconds that a stage of the target has computed.");
  for (size_t i = 0; i < report.stage_busy.size(); ++i)
    page.sample(report.stage_busy[i], fmt::format("stage=\"{}\"", i));
  page.counter("sluice_coordinator_cpu_seconds_total", "Seconds of a processor that the coordinator has used.",
               report.coordinator_seconds);
  page.counter("sluice_engine_restarts_total", "Times that the engine's process ended and another one went on.",
               report.restarts);
  page.gauge("sluice_engine_resident_memory_bytes", "Resident memory of the engine's process, 0 if it is this one.",
             report.resident_bytes);
  page.gauge("process_resident_memory_bytes", "Resident memory of this process.", resident_bytes());
}

// Those that a request may name, and what else it may choose of them.
Json methods_of(const Session& session, const ServeDefaults& defaults) {
  Json methods = Json::array();
  for (const std::string& name : defaults.methods)
    methods.push_back({{"name", name},
                       {"width", takes_option(session, name, "width")},
                       {"depth", takes_option(session, name, "depth")}});
  return methods;
}

}  // namespace

Json sampling_settings(const SamplingParams& sampling, size_t max_tokens) {
  return {{"n_predict", max_tokens},
          {"max_tokens", max_tokens},
          {"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"repeat_penalty", sampling.repeat_penalty},
          {"seed", sampling.seed}};
}

size_t resident_bytes() {
  size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

std::string metrics_page(const EngineReport& report, const std::string& model) {
  MetricsPage page(model);
  add_requests(page, report);
  add_tokens(page, report.counts);
  add_engine(page, report);
  return std::move(page).text();
}

Json props_page(const Session& session, const ServeDefaults& defaults) {
  const Tokenizer& tokenizer = session.tokenizer();
  const auto text_of = [&](Token token) { return token == kNoToken ? std::string() : tokenizer.piece(token, true); };
  const int32_t context = session.options().context;
  Json params =
      sampling_settings(session.options().request.sampling, static_cast<size_t>(defaults.max_tokens.value_or(context)));
  params["seed"] = defaults.seed ? Json(*defaults.seed) : Json();
  return {{"default_generation_settings", {{"n_ctx", context}, {"params", std::move(params)}}},
          {"total_slots", defaults.slots},
          {"model_alias", defaults.model},
          {"model_path", std::filesystem::path(session.options().model).filename().string()},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"chat_template", session.template_source()},
          {"bos_token", text_of(tokenizer.bos())},
          {"eos_token", text_of(tokenizer.eos())},
          {"sluice",
           {{"method", session.options().request.method},
            {"methods", methods_of(session, defaults)},
            {"stages", session.cuts().size()}}}};
}

Json slots_page(const EngineReport& report, const Session& session, const ServeDefaults& defaults) {
  Json slots = Json::array();
  for (const Slot& slot : report.slots) {
    const size_t remain = slot.max_tokens - std::min(slot.max_tokens, slot.answer_tokens);
    const Json next = {{"has_next_token", true}, {"n_remain", remain}, {"n_decoded", slot.answer_tokens}};
    slots.push_back(
        {{"id", slots.size()},
         {"id_task", slot.request.value},
         {"n_ctx", session.options().context},
         {"speculative", slot.source != "none"},
         {"is_processing", true},
         {"params", sampling_settings(slot.sampling, slot.max_tokens)},
         {"next_token", Json::array({next})},
         {"sluice", {{"method", slot.method}, {"source", slot.source}, {"prompt_tokens", slot.prompt_tokens}}}});
  }
  while (slots.size() < static_cast<size_t>(defaults.slots))
    slots.push_back({{"id", slots.size()}, {"n_ctx", session.options().context}, {"is_processing", false}});
  return slots;
}

}  // namespace sluice

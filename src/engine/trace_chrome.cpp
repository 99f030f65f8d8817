// The trace as Chrome's trace events: one thread a stage, one slice a batch at a stage, arrows that follow a batch from
// stage to stage.
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "engine/trace.h"

namespace sluice {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kProcess = 1;
constexpr int kTokenThread = 0;  // the emitted tokens; stage i is thread i + 1

int thread_of(StageId stage) { return stage.value + 1; }

// Chrome's unit; a picosecond is fine enough, and shorter digits make a smaller file.
double microseconds(double seconds) { return std::isfinite(seconds) ? std::round(seconds * 1e12) / 1e6 : 0.0; }

class Writer {
 public:
  explicit Writer(const Trace& trace) : trace_(trace) {
    for (const TraceBatch& batch : trace.batches) batches_[batch.id] = &batch;
  }

  std::string write() {
    names();
    for (const TraceSpan& span : trace_.spans) slice(span);
    flows();
    for (const TraceEmission& emission : trace_.emissions) token(emission);
    return "{\"displayTimeUnit\":\"ms\",\"otherData\":" + text(other_data()) + ",\"traceEvents\":[" + events_ +
           "\n]}\n";
  }

 private:
  // Token texts are any bytes: what is not UTF-8 becomes U+FFFD.
  static std::string text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

  void add(const Json& event) {
    events_ += events_.empty() ? "\n" : ",\n";
    events_ += text(event);
  }

  void metadata(const char* what, int thread, Json args) {
    add({{"name", what}, {"ph", "M"}, {"pid", kProcess}, {"tid", thread}, {"args", std::move(args)}});
  }

  void name_thread(int thread, const std::string& label) {
    metadata("thread_name", thread, {{"name", label}});
    metadata("thread_sort_index", thread, {{"sort_index", thread}});
  }

  void names() {
    const TraceHeader& header = trace_.header;
    metadata("process_name", kTokenThread, {{"name", "sluice " + header.method + ", " + header.model}});
    name_thread(kTokenThread, "tokens");
    for (int stage = 0; stage < header.stages; stage++) {
      std::string label = "stage " + std::to_string(stage);
      if (static_cast<size_t>(stage) < header.cuts.size()) {
        const auto [first, last] = header.cuts[static_cast<size_t>(stage)];
        label += " (layers " + std::to_string(first) + " to " + std::to_string(last - 1) + ")";
      }
      name_thread(thread_of(StageId(stage)), label);
    }
    for (size_t i = 0; i < header.drafts.size(); i++)
      name_thread(thread_of(StageId(header.stages + static_cast<int32_t>(i))), header.drafts[i]);
  }

  void slice(const TraceSpan& span) {
    Json args = {{"batch", span.batch.value}, {"rows", 0}, {"computed", span.rows_computed}};
    if (const auto found = batches_.find(span.batch); found != batches_.end()) {
      std::map<std::string, int> fates;
      Json tokens = Json::array();
      for (const TraceRow& row : found->second->rows) {
        fates[name(row.fate)]++;
        tokens.push_back(row.text);
      }
      args["rows"] = found->second->rows.size();
      args["fates"] = fates;
      args["tokens"] = std::move(tokens);
    }
    add({{"name", "batch " + std::to_string(span.batch.value)},
         {"cat", "batch"},
         {"ph", "X"},
         {"ts", microseconds(span.begin)},
         {"dur", microseconds(std::max(0.0, span.end - span.begin))},
         {"pid", kProcess},
         {"tid", thread_of(span.stage)},
         {"args", std::move(args)}});
  }

  // An arrow begins (s), goes on (t) and ends (f) inside the slices that it links.
  void flows() {
    std::map<BatchId, std::vector<const TraceSpan*>> spans_of;
    for (const TraceSpan& span : trace_.spans) spans_of[span.batch].push_back(&span);
    for (auto& [batch, spans] : spans_of) {
      if (spans.size() < 2) continue;
      std::stable_sort(spans.begin(), spans.end(), [](auto* a, auto* b) { return a->begin < b->begin; });
      for (const TraceSpan* span : spans) {
        Json event = {{"name", "batch"},
                      {"cat", "flow"},
                      {"ph", span == spans.front()  ? "s"
                             : span == spans.back() ? "f"
                                                    : "t"},
                      {"id", batch.value},
                      {"ts", microseconds(span->begin)},
                      {"pid", kProcess},
                      {"tid", thread_of(span->stage)}};
        if (span == spans.back()) event["bp"] = "e";
        add(event);
      }
    }
  }

  // Something of an instant, on the thread of tokens. scope: how far its line reaches.
  void instant(const std::string& name, const char* kind, const char* scope, double time, Json args) {
    add({{"name", name},
         {"cat", kind},
         {"ph", "i"},
         {"s", scope},
         {"ts", microseconds(time)},
         {"pid", kProcess},
         {"tid", kTokenThread},
         {"args", std::move(args)}});
  }

  void token(const TraceEmission& emission) {
    Json args = {{"request", emission.request}, {"position", emission.position}, {"hit", emission.hit}};
    instant(emission.text, "token", "t", emission.time, args);
    args.erase("hit");
    if (!emission.hit) instant("flush", "flush", "p", emission.time, std::move(args));
  }

  Json other_data() const {
    const TraceHeader& header = trace_.header;
    return {{"model", header.model},           {"method", header.method},       {"source", header.source},
            {"executor", header.executor},     {"profile", header.profile},     {"stages", header.stages},
            {"width", header.width},           {"steps", header.steps},         {"decode_begin", header.decode_begin},
            {"decode_end", header.decode_end}, {"simulated", header.simulated}, {"utilisation", trace_.utilisation()}};
  }

  const Trace& trace_;
  std::unordered_map<BatchId, const TraceBatch*> batches_;
  std::string events_;
};

}  // namespace

std::string Trace::chrome_json() const { return Writer(*this).write(); }

}  // namespace sluice

// The trace as a page: timeline.html with the data in place of its marker. The page draws, this file only packs: one
// array a column, times in whole nanoseconds since the first event, each text once.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_map>

#include "base/result.h"
#include "engine/timeline_page.h"
#include "engine/trace.h"

namespace sluice {

extern const std::string_view kTimelinePage;  // timeline.html

namespace {

using Json = nlohmann::ordered_json;

// Columns of these names, in which nothing stands yet.
Json columns(std::initializer_list<const char*> names) {
  Json all;
  for (const char* name : names) all[name] = Json::array();
  return all;
}

double rounded(double value, double parts) { return std::round(value * parts) / parts; }

class Packer {
 public:
  explicit Packer(const Trace& trace) : trace_(trace), origin_(first_time()) {}

  Json pack() {
    Json data = {{"header", header()}, {"batches", batches()}, {"spans", spans()}, {"emissions", emissions()}};
    data["texts"] = std::move(texts_);  // last: the columns above filled it
    return data;
  }

 private:
  double first_time() const {
    double first = std::numeric_limits<double>::infinity();
    const auto see = [&](double time) {
      if (std::isfinite(time)) first = std::min(first, time);
    };
    for (const TraceBatch& batch : trace_.batches) see(batch.submitted);
    for (const TraceSpan& span : trace_.spans) see(span.begin);
    for (const TraceEmission& emission : trace_.emissions) see(emission.time);
    return std::isfinite(first) ? first : 0.0;
  }

  // A page counts exactly up to 2^53, 104 days.
  int64_t nanoseconds(double time) const {
    const double since = (time - origin_) * 1e9;
    return std::isfinite(since) ? std::llround(std::clamp(since, -9e15, 9e15)) : 0;
  }

  int32_t text(const std::string& bytes) {
    const auto [entry, is_new] = text_index_.try_emplace(bytes, static_cast<int32_t>(texts_.size()));
    if (is_new) texts_.push_back(bytes);
    return entry->second;
  }

  Json header() const {
    const TraceHeader& h = trace_.header;
    Json utilisation = Json::array();
    for (const double share : trace_.utilisation()) utilisation.push_back(rounded(share, 1e6));
    return {{"model", h.model},
            {"method", h.method},
            {"source", h.source},
            {"executor", h.executor},
            {"profile", h.profile},
            {"stages", h.stages},
            {"drafts", h.drafts},
            {"width", h.width},
            {"steps", h.steps},
            {"cuts", h.cuts},
            {"simulated", h.simulated},
            {"decode_begin", nanoseconds(h.decode_begin)},
            {"decode_end", nanoseconds(h.decode_end)},
            {"utilisation", utilisation}};
  }

  // Rows of batch i are first[i] … first[i + 1] - 1 of the row columns.
  Json batches() {
    Json all = columns({"id", "submitted", "first", "token", "text", "position", "parent", "probability", "log_path",
                        "fate", "resolved", "request"});
    Json& first = all["first"];
    int32_t rows = 0;
    for (const TraceBatch& batch : trace_.batches) {
      batch_index_.try_emplace(batch.id, static_cast<int32_t>(first.size()));
      all["id"].push_back(batch.id.value);
      all["submitted"].push_back(nanoseconds(batch.submitted));
      first.push_back(rows);
      rows += static_cast<int32_t>(batch.rows.size());
      for (const TraceRow& row : batch.rows) {
        all["token"].push_back(row.token);
        all["text"].push_back(text(row.text));
        all["position"].push_back(row.position);
        all["parent"].push_back(row.parent_row);
        all["probability"].push_back(rounded(row.probability, 1e4));
        all["log_path"].push_back(rounded(row.log_path, 1e3));
        all["fate"].push_back(static_cast<int>(row.fate));
        all["resolved"].push_back(row.resolved < 0 ? -1 : nanoseconds(row.resolved));
        all["request"].push_back(row.request);
      }
    }
    first.push_back(rows);
    return all;
  }

  Json spans() const {
    Json all = columns({"stage", "batch", "begin", "end", "computed"});
    const int32_t rows = trace_.header.stages + static_cast<int32_t>(trace_.header.drafts.size());
    for (const TraceSpan& span : trace_.spans) {
      const auto found = batch_index_.find(span.batch);
      if (found == batch_index_.end() || !span.stage.valid() || span.stage.value >= rows) continue;
      all["stage"].push_back(span.stage.value);
      all["batch"].push_back(found->second);
      all["begin"].push_back(nanoseconds(span.begin));
      all["end"].push_back(nanoseconds(std::max(span.begin, span.end)));
      all["computed"].push_back(span.rows_computed);
    }
    return all;
  }

  Json emissions() {
    Json all = columns({"time", "request", "position", "text", "hit"});
    for (const TraceEmission& emission : trace_.emissions) {
      all["time"].push_back(nanoseconds(emission.time));
      all["request"].push_back(emission.request);
      all["position"].push_back(emission.position);
      all["text"].push_back(text(emission.text));
      all["hit"].push_back(emission.hit ? 1 : 0);
    }
    return all;
  }

  const Trace& trace_;
  const double origin_;
  Json texts_ = Json::array();
  std::unordered_map<std::string, int32_t> text_index_;
  std::unordered_map<BatchId, int32_t> batch_index_;
};

// JSON that can stand inside a script element: bytes that are not UTF-8 become U+FFFD, and no text can close the
// element, since a `<` occurs in JSON only inside strings, where it has another spelling.
std::string inert(const Json& data) {
  const std::string json = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out;
  out.reserve(json.size() + json.size() / 16);
  for (const char c : json) c == '<' ? out += "\\u003c" : out += c;
  return out;
}

}  // namespace

std::string timeline_page(const Json& data) {
  const size_t at = kTimelinePage.find(kTimelineMarker);
  SLUICE_CHECK(at != std::string_view::npos, "the page has a place for the trace");
  std::string page(kTimelinePage.substr(0, at));
  page += inert(data);
  page += kTimelinePage.substr(at + kTimelineMarker.size());
  return page;
}

std::string_view timeline_template() { return kTimelinePage; }

std::string Trace::html() const { return timeline_page(Packer(*this).pack()); }

}  // namespace sluice

#include "serve/live_events.h"

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "serve/answer_form.h"

namespace sluice {

namespace {

using Json = nlohmann::ordered_json;

// To 10 microseconds.
double rounded(double seconds) { return std::round(seconds * 1e5) / 1e5; }

std::string event(const char* type, Json members) {
  Json all = {{"type", type}};
  all.update(members);
  return event_of(all, type);
}

}  // namespace

std::string hello_event(const TraceHeader& header, const std::string& model, const std::string& method) {
  return event("hello", {{"model", model},
                         {"method", method},
                         {"stages", header.stages},
                         {"cuts", header.cuts},
                         {"drafts", header.drafts},
                         {"executor", header.executor},
                         {"profile", std::filesystem::path(header.profile).stem().string()},  // not where its file lies
                         {"simulated", header.simulated}});
}

std::string steps_event(const Steps& steps, double now) {
  Json batches = Json::array(), spans = Json::array(), fates = Json::array(), tokens = Json::array();
  for (const Steps::Entered& batch : steps.entered)
    batches.push_back({batch.batch.value, batch.model.value, rounded(batch.time), batch.prompt_rows, batch.node_rows});
  for (const TraceSpan& span : steps.spans)
    spans.push_back({span.stage.value, span.batch.value, rounded(span.begin), rounded(span.end), span.rows_computed});
  for (const Steps::Resolved& rows : steps.resolved)
    fates.push_back({rows.batch.value, static_cast<int>(rows.fate), rows.rows, rounded(rows.time)});
  for (const Steps::Came& came : steps.came)
    tokens.push_back({rounded(came.time), came.request, came.tokens, came.hit ? 1 : 0});
  return event("steps", {{"now", rounded(now)},
                         {"batches", std::move(batches)},
                         {"spans", std::move(spans)},
                         {"fates", std::move(fates)},
                         {"tokens", std::move(tokens)},
                         {"lost", steps.lost}});
}

std::string figures_event(const EngineReport& report, size_t memory) {
  const Counts& counts = report.counts;
  Json busy = Json::array();
  for (const double seconds : report.stage_busy) busy.push_back(rounded(seconds));
  return event("figures", {{"now", rounded(report.now)},
                           {"running", report.running},
                           {"waiting", report.waiting},
                           {"trouble", report.trouble},
                           {"prompt_tokens", counts.prompt_tokens},
                           {"tokens", counts.answer_tokens},
                           {"drafted", counts.drafted},
                           {"accepted", counts.accepted},
                           {"flushes", counts.flushes},
                           {"batches", report.batches},
                           {"busy", std::move(busy)},
                           {"cells", report.cells},
                           {"cells_running", report.cells_running},
                           {"cells_held", report.cells_held},
                           {"memory", memory}});
}

std::string lost_event(uint64_t events) { return event("lost", {{"events", events}}); }

}  // namespace sluice

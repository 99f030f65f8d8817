#include "support/trace_check.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <utility>

namespace sluice::test {

namespace {

template <class... Parts>
std::string say(const Parts&... parts) {
  std::ostringstream text;
  text.precision(17);
  (text << ... << parts);
  return text.str();
}

bool is_dead(Fate fate) { return fate == Fate::kPruned || fate == Fate::kFlushed; }

}  // namespace

std::string check_order(const Trace& trace, bool promptly) {
  std::map<std::pair<int64_t, int32_t>, TraceSpan> spans;  // by batch and stage
  for (const TraceSpan& span : trace.spans)
    if (!spans.try_emplace({span.batch.value, span.stage.value}, span).second)
      return say("batch ", span.batch.value, " was twice at stage ", span.stage.value);
  std::map<ModelId, int64_t> latest;
  std::vector<int64_t> previous;  // the batch of the same model before, -1: none
  for (const TraceBatch& batch : trace.batches) {
    const auto at = latest.try_emplace(batch.model, -1).first;
    previous.push_back(std::exchange(at->second, batch.id.value));
  }
  for (const auto& [key, span] : spans) {
    const auto [batch, stage] = key;
    const int64_t before_it = previous[static_cast<size_t>(batch)];
    const ModelId model = trace.batches[static_cast<size_t>(batch)].model;
    const int32_t first_stage = model == kTarget ? 0 : trace.header.stages + model.value - 1;  // drafts have one
    if (span.end < span.begin) return say("batch ", batch, " ends before it begins at stage ", stage);
    double ready = trace.batches[static_cast<size_t>(batch)].submitted;
    if (stage > first_stage) {
      const auto above = spans.find({batch, stage - 1});
      if (above != spans.end()) {
        ready = above->second.end;
      } else if (trace.header.simulated) {
        return say("batch ", batch, " skipped stage ", stage - 1);
      }
    }
    if (const auto before = spans.find({before_it, stage}); before != spans.end()) {
      ready = std::max(ready, before->second.end);
    } else if (before_it >= 0 && trace.header.simulated) {
      return say("batch ", batch, " overtook another before stage ", stage);
    }
    if (span.begin < ready) return say("batch ", batch, " at stage ", stage, " began at ", span.begin, " < ", ready);
    if (promptly && span.begin > ready)
      return say("stage ", stage, " idled from ", ready, " to ", span.begin, " while batch ", batch, " waited");
  }
  return "";
}

std::string check_fates(const Trace& trace) {
  std::set<std::pair<int32_t, int32_t>> nodes, accepted;
  for (const TraceBatch& batch : trace.batches) {
    if (batch.model != kTarget) continue;
    for (const TraceRow& row : batch.rows) {
      const auto where = say("batch ", batch.id.value, " node ", row.node.value, " request ", row.request, ": ");
      if (row.node.valid() == (row.fate == Fate::kPrompt)) return where + "a prompt row is no node and vice versa";
      if (!row.node.valid()) continue;
      if (!nodes.emplace(row.request, row.node.value).second) return where + "entered twice";
      if (row.fate == Fate::kUnresolved) return where + "has no fate";
      if (row.resolved < batch.submitted) return where + "resolved before it entered";
      if (row.fate == Fate::kAccepted && !accepted.emplace(row.request, row.position).second)
        return where + "the second that was accepted at its position";
    }
  }
  return "";
}

std::string check_cancels(const Trace& trace) {
  const int32_t last = trace.header.stages - 1;
  for (const TraceSpan& span : trace.spans) {
    if (span.stage.value > last) continue;  // a draft model
    const auto& rows = trace.batches[static_cast<size_t>(span.batch.value)].rows;
    const auto expected = static_cast<int32_t>(std::count_if(rows.begin(), rows.end(), [&](const TraceRow& row) {
      return !is_dead(row.fate) || row.resolved > span.begin;
    }));
    if (span.rows_computed > expected || (span.stage.value < last && span.rows_computed < expected))
      return say("stage ", span.stage.value, " computed ", span.rows_computed, " rows of batch ", span.batch.value,
                 " at ", span.begin, "; alive were ", expected);
  }
  return "";
}

std::string difference(const Trace& a, const Trace& b) {
  if (a.batches.size() != b.batches.size()) return say(a.batches.size(), " and ", b.batches.size(), " batches");
  for (size_t i = 0; i < a.batches.size(); ++i) {
    const TraceBatch &x = a.batches[i], &y = b.batches[i];
    if (x.submitted != y.submitted) return say("batch ", i, " submitted at ", x.submitted, " and ", y.submitted);
    if (x.rows.size() != y.rows.size()) return say("batch ", i, " of ", x.rows.size(), " and ", y.rows.size(), " rows");
    for (size_t r = 0; r < x.rows.size(); ++r) {
      const auto key = [](const TraceRow& row) {
        return std::tie(row.node, row.request, row.token, row.position, row.parent_row, row.log_path, row.fate,
                        row.resolved);
      };
      if (key(x.rows[r]) != key(y.rows[r])) return say("batch ", i, " row ", r, " differs");
    }
  }
  if (a.spans.size() != b.spans.size()) return say(a.spans.size(), " and ", b.spans.size(), " spans");
  for (size_t i = 0; i < a.spans.size(); ++i) {
    const auto key = [](const TraceSpan& s) { return std::tie(s.stage, s.batch, s.begin, s.end, s.rows_computed); };
    if (key(a.spans[i]) != key(b.spans[i]))
      return say("span ", i, " (stage ", a.spans[i].stage.value, ", batch ", a.spans[i].batch.value, ") differs");
  }
  if (a.emissions.size() != b.emissions.size()) return "another number of tokens";
  for (size_t i = 0; i < a.emissions.size(); ++i) {
    const auto key = [](const TraceEmission& e) { return std::tie(e.time, e.request, e.position, e.text, e.hit); };
    if (key(a.emissions[i]) != key(b.emissions[i])) return say("token ", i, " differs");
  }
  return "";
}

}  // namespace sluice::test

#include "session/measure_hosts.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "pipeline/cost_model.h"
#include "plan/measure.h"

namespace sluice {

namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// What was seen of batches of so many rows that found the pipeline empty.
struct Seen {
  std::vector<std::vector<double>> passes;  // [stages]: seconds that it computed them
  std::vector<std::vector<double>> trips;   // [stages]: until it was heard of, beside what stages computed until then
  std::vector<double> rounds;               // until its verdict came, likewise
  explicit Seen(size_t n_stages) : passes(n_stages), trips(n_stages) {}
};

class Reader {
 public:
  Reader(const Trace& trace, std::span<const LayerRange> cuts) : cuts_(cuts), nodes_(cuts.size()) {
    std::map<int64_t, std::vector<const TraceSpan*>> spans;  // by batch, stage by stage
    for (const TraceSpan& span : trace.spans) spans[span.batch.value].push_back(&span);
    bool after_prompt = false;
    for (const TraceBatch& batch : trace.batches) {
      if (batch.model != kTarget || batch.rows.empty()) continue;
      const bool prompt = batch.rows.front().fate == Fate::kPrompt, pure = batch.rows.back().fate == batch.rows[0].fate;
      const bool alone = prompt ? pure && batch.rows.front().position == 0 : !after_prompt;
      after_prompt = prompt;
      const auto& of_batch = spans[batch.id.value];
      if (!alone || of_batch.size() < cuts.size()) continue;
      const auto width = static_cast<int32_t>(batch.rows.size());
      take(batch, of_batch, prompt ? prompts_.try_emplace(width, cuts.size()).first->second : nodes_);
    }
  }

  bool knows_passes() const { return !prompts_.empty(); }

  // Of the stage of most layers, whose passes tell best.
  CostCurve layer() const {
    CostCurve curve;
    for (const auto& [rows, seen] : prompts_)
      curve.points.push_back({static_cast<double>(rows), median(seen.passes[reference()]) / layers(reference())});
    mend(curve);
    return curve;
  }

  // Of each stage, times that of the reference: what most widths say, since a single one may have been disturbed.
  std::vector<double> speeds() const {
    std::vector<double> speeds;
    for (size_t s = 0; s < cuts_.size(); ++s) {
      std::vector<double> ratios;
      for (const auto& [rows, seen] : prompts_)
        if (const double its = median(seen.passes[s]) / layers(s); its > 0)
          ratios.push_back(median(seen.passes[reference()]) / layers(reference()) / its);
      speeds.push_back(ratios.empty() ? 1.0 : median(std::move(ratios)));
    }
    return speeds;
  }

  // Seconds of the output head for a row, on the last stage's device.
  double head() const {
    return std::max(0.0, median(nodes_.passes.back()) - median(prompts_.begin()->second.passes.back()));
  }

  void read_links(int32_t d_model, Profile& profile) const {
    double all = 0;
    for (size_t s = 0; s < cuts_.size(); ++s) {
      const double both = median(nodes_.trips[s]) - all;  // to the stage, and back from it
      const double way = std::max(0.0, both) / 2;
      profile.edges.push_back({.latency = way, .bandwidth = s == 0 ? 0.0 : bandwidth(s, d_model)});
      profile.direct.push_back({.latency = way});
      all += way;
    }
    profile.edges.push_back({.latency = std::max(0.0, median(nodes_.rounds) - all)});
  }

 private:
  void take(const TraceBatch& batch, const std::vector<const TraceSpan*>& spans, Seen& seen) const {
    double computed = 0;
    for (const TraceSpan* span : spans) {
      const auto s = static_cast<size_t>(span->stage.value);
      const double pass = span->end - span->begin;
      computed += pass;
      seen.passes[s].push_back(pass);
      seen.trips[s].push_back(span->end - batch.submitted - computed);
    }
    if (batch.rows.front().resolved > 0)
      seen.rounds.push_back(batch.rows.front().resolved - batch.submitted - computed);
  }

  double layers(size_t stage) const { return cuts_[stage].count(); }
  size_t reference() const {
    return static_cast<size_t>(std::ranges::max_element(cuts_, {}, &LayerRange::count) - cuts_.begin());
  }

  // Of the edge to a stage, by how much longer wide batches are on it; 0: too fast to tell.
  double bandwidth(size_t stage, int32_t d_model) const {
    constexpr double kTell = 100e-6;  // seconds
    const auto& [narrow, few] = *prompts_.begin();
    const auto& [wide, many] = *prompts_.rbegin();
    const auto way = [&](const Seen& seen) { return median(seen.trips[stage]) - median(seen.trips[stage - 1]); };
    const CostModel cost({}, {}, d_model);
    const double longer = way(many) - way(few), bytes = cost.state_bytes(wide) - cost.state_bytes(narrow);
    return longer > kTell ? bytes / longer : 0.0;
  }

  std::span<const LayerRange> cuts_;
  std::map<int32_t, Seen> prompts_;  // by rows
  Seen nodes_;                       // of one row, and the head
};

}  // namespace

Profile profile_of(const Trace& trace, std::span<const LayerRange> cuts, int32_t d_model) {
  Profile profile;
  profile.source = "measured";
  const Reader reader(trace, cuts);
  if (!reader.knows_passes()) return profile;
  profile.layer = reader.layer();
  profile.speeds = reader.speeds();
  const double head = reader.head() * profile.speeds.back();
  profile.head.points = {{1, head}, {2, 2 * head}};  // one row after the other
  reader.read_links(d_model, profile);
  return profile;
}

Result<Profile> measure_hosts(const Session& session, const std::function<bool(double)>& goes_on) {
  constexpr size_t kWidths[] = {1, 2, 4, 8, 16, 32, 64};
  constexpr size_t kTimes = 4, kAll = kTimes * std::size(kWidths);
  constexpr int32_t kTokens = 4;
  const auto n_tokens = static_cast<size_t>(session.model().hparams().n_vocab);
  SLUICE_TRY(const auto engine, session.make_engine("ar", 1));
  for (size_t i = 0; i < kAll; ++i) {  // all widths, then all again
    RequestSpec spec{.prompt = {}, .sampling = {}, .max_tokens = kTokens, .method = "ar", .ignore_end = true};
    for (size_t t = 0; t <= kWidths[i % std::size(kWidths)]; ++t)
      spec.prompt.push_back(static_cast<Token>((97 * t + 31 * i) % n_tokens));
    SLUICE_TRY(const RequestId id, engine->submit(std::move(spec)));
    while (engine->busy()) SLUICE_TRY_STATUS(engine->step().map([](const auto&) {}));
    if (engine->request(id).finish == Finish::kFailed) return tl::unexpected<Error>(engine->request(id).error);
    engine->release(id);
    const double done = static_cast<double>(i + 1) / kAll;
    if (!goes_on(done)) break;
  }
  return profile_of(engine->trace(), session.cuts(), session.model().hparams().d_model);
}

}  // namespace sluice

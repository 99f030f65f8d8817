#include "engine/figures.h"

#include <algorithm>

#include "theory/theory.h"

namespace sluice {

namespace {

void add_relayed(const Request& request, double tokens, RequestFigures& figures) {
  const Relayed &begin = request.relayed_begin, &end = request.relayed_end;
  const Relayed during{.edges = end.edges,
                       .batches = end.batches - begin.batches,
                       .bytes = end.bytes - begin.bytes,
                       .seconds = end.seconds - begin.seconds};
  figures.relayed_edges = during.edges;
  figures.relayed_bytes_per_token = tokens > 0 ? static_cast<double>(during.bytes) / tokens : 0.0;
  figures.relayed_seconds_per_step = during.seconds_per_step();
}

}  // namespace

RequestFigures figures_of(const Request& request, std::span<const StageClock> now, const CostModel* cost) {
  const RequestStats& stats = request.stats;
  RequestFigures figures;
  const double tokens = static_cast<double>(request.n_generated()) - 1;
  if (tokens < 0) return figures;
  figures.prefill_seconds = stats.first_token - stats.submitted;
  figures.decode_seconds = stats.last_token - stats.first_token;
  if (figures.decode_seconds <= 0) return figures;
  figures.tokens_per_second = tokens / figures.decode_seconds;
  if (request.finish != Finish::kNone) add_relayed(request, tokens, figures);
  const auto& begin = request.decode_begin;
  const auto end = request.decode_end.empty() ? now : std::span<const StageClock>(request.decode_end);
  double slowest = 0;
  for (size_t s = 0; s < now.size(); ++s) {
    const double busy = end[s].busy - begin[s].busy;
    const double batches = static_cast<double>(end[s].batches - begin[s].batches);
    figures.stage_utilisation.push_back(std::min(1.0, busy / figures.decode_seconds));
    figures.stage_computing.push_back(busy > 0 ? (end[s].computed - begin[s].computed) / busy : 0.0);
    if (batches > 0) slowest = std::max(slowest, busy / batches);
  }
  // Without a cost model the time of the slowest stage is taken as measured, at whatever width it ran.
  if (cost != nullptr) slowest = cost->step_seconds();
  if (slowest > 0) figures.steps = figures.decode_seconds / slowest;
  if (figures.steps > 0)
    figures.equivalent_acceptance_length =
        theory::equivalent_acceptance_length(static_cast<int>(now.size()), tokens, figures.steps);
  return figures;
}

}  // namespace sluice

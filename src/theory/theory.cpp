#include "theory/theory.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/result.h"

namespace sluice::theory {
namespace {

// False for NaN, as every comparison with it is.
bool is_probability(double p) { return p >= 0.0 && p <= 1.0; }
bool is_time(double t) { return t >= 0.0 && std::isfinite(t); }
bool is_positive(double x) { return x > 0.0 && std::isfinite(x); }

void check_chain(double acceptance, int lookahead) {
  SLUICE_CHECK(is_probability(acceptance), "an acceptance rate lies in [0, 1]");
  SLUICE_CHECK(lookahead >= 0, "a chain has no negative length");
}

double slowest_of(std::span<const double> stage_seconds) {
  SLUICE_CHECK(!stage_seconds.empty() && std::all_of(stage_seconds.begin(), stage_seconds.end(), is_time),
               "a pipeline has stages, and their times are finite");
  return *std::max_element(stage_seconds.begin(), stage_seconds.end());
}

}  // namespace

double expected_round_tokens(double acceptance, int lookahead) {
  check_chain(acceptance, lookahead);
  double tokens = 1.0;  // 1 + a + … + a^K, which needs no special case at a = 1
  for (int k = 0; k < lookahead; ++k) tokens = 1.0 + acceptance * tokens;
  return tokens;
}

double steady_state_share(double stay, double enter) {
  SLUICE_CHECK(is_probability(stay) && is_probability(enter), "the transitions are probabilities");
  SLUICE_CHECK(stay < 1.0 || enter > 0.0, "two states that never change have no common steady state");
  return enter / (1.0 - stay + enter);
}

double sd_speedup(double acceptance, int lookahead, double draft_ratio) {
  SLUICE_CHECK(draft_ratio > 0.0, "the draft makes some tokens in a target pass");
  return expected_round_tokens(acceptance, lookahead) / (lookahead / draft_ratio + 1.0);
}

double specpipe_time_between_tokens(std::span<const double> stage_seconds, double hit) {
  SLUICE_CHECK(is_probability(hit), "a hit rate lies in [0, 1]");
  const double slowest = slowest_of(stage_seconds);
  const double through = std::accumulate(stage_seconds.begin(), stage_seconds.end(), 0.0);
  return slowest + (1.0 - hit) * (through - slowest);
}

double specpipe_synchronised_time_between_tokens(std::span<const double> stage_seconds, double hit) {
  SLUICE_CHECK(is_probability(hit), "a hit rate lies in [0, 1]");
  const double refill = static_cast<double>(stage_seconds.size()) - 1.0;
  return slowest_of(stage_seconds) * (1.0 + refill * (1.0 - hit));
}

double level_speedup(int stages, double hit) {
  SLUICE_CHECK(stages >= 1, "a pipeline has stages");
  SLUICE_CHECK(is_probability(hit), "a hit rate lies in [0, 1]");
  return stages / (1.0 + (stages - 1) * (1.0 - hit));
}

double hit_of_level_speedup(int stages, double speedup) {
  SLUICE_CHECK(stages > 1, "one stage has the same speed at any hit rate");
  SLUICE_CHECK(speedup >= 1.0 && speedup <= stages, "one level a step gains between 1 and the number of stages");
  return 1.0 - (stages / speedup - 1.0) / (stages - 1);
}

double pipespec_verification_share(double acceptance, int window) {
  check_chain(acceptance, window);
  SLUICE_CHECK(window >= 1, "a verification has something to verify");
  return steady_state_share(std::pow(acceptance, window + 1), acceptance);
}

double pipespec_speedup(double acceptance, int window) {
  const double verifies = pipespec_verification_share(acceptance, window);
  return (1.0 - verifies) + verifies * expected_round_tokens(acceptance, window);
}

double ssd_speedup(const SsdRound& round) {
  SLUICE_CHECK(round.tokens >= 1.0 && round.fallback_tokens >= 1.0, "every verification yields a token");
  SLUICE_CHECK(is_probability(round.hit_rate), "a hit rate lies in [0, 1]");
  SLUICE_CHECK(is_time(round.prespeculation_time) && is_time(round.fallback_time), "times are finite");
  const double hit = round.hit_rate, miss = 1.0 - hit;
  return (hit * round.tokens + miss * round.fallback_tokens) /
         (hit * std::max(1.0, round.prespeculation_time) + miss * (1.0 + round.fallback_time));
}

double equivalent_acceptance_length(int stages, double tokens, double steps) {
  SLUICE_CHECK(stages >= 1 && is_time(tokens) && is_positive(steps), "tokens come out of steps of a pipeline");
  return stages * tokens / steps;
}

double ppsd_speedup(double equivalent_length, int stages, double module_layers, double layers) {
  SLUICE_CHECK(is_time(equivalent_length) && stages >= 1, "a length over a pipeline");
  SLUICE_CHECK(is_time(module_layers) && is_positive(layers), "models have layers");
  return equivalent_length * layers / (module_layers * stages + layers);
}

double eagle_speedup(double acceptance_length, int draft_steps, double head_layers, double layers) {
  SLUICE_CHECK(is_time(acceptance_length) && draft_steps >= 0, "a length after some draft steps");
  SLUICE_CHECK(is_time(head_layers) && is_positive(layers), "models have layers");
  return acceptance_length * layers / (head_layers * draft_steps + layers);
}

double speedup_of_entries(double pipeline_time, std::span<const double> gaps) {
  SLUICE_CHECK(is_positive(pipeline_time) && std::all_of(gaps.begin(), gaps.end(), is_time),
               "times are finite, and a pipeline takes some");
  const double between = std::accumulate(gaps.begin(), gaps.end(), 0.0);
  SLUICE_CHECK(is_positive(between), "tokens enter one after the other");
  return pipeline_time * static_cast<double>(gaps.size()) / between;
}

double surge_speedup(double coverage, double draft_time, double pipeline_time) {
  SLUICE_CHECK(is_probability(coverage), "a coverage lies in [0, 1]");
  SLUICE_CHECK(is_time(draft_time) && is_positive(pipeline_time), "times are finite, and a pipeline takes some");
  // Where the draft is slower than the pipeline, the token is known before its level is, and enters as a new root.
  const double hit_time = std::min(1.0, draft_time / pipeline_time);
  return 1.0 / ((1.0 - coverage) + coverage * hit_time);
}

double surge_draft_bound(double draft_time, double pipeline_time) {
  SLUICE_CHECK(is_positive(draft_time), "without a draft's time there is no such bound");
  return surge_speedup(1.0, draft_time, pipeline_time);
}

double surge_miss_bound(double coverage) {
  SLUICE_CHECK(coverage < 1.0, "without misses there is no such bound");
  return surge_speedup(coverage, 0.0, 1.0);
}

double surge_row_bound(int stages, double level_rows, double row_budget) {
  SLUICE_CHECK(stages >= 1 && is_positive(level_rows) && is_positive(row_budget), "levels and steps have rows");
  return stages * row_budget / level_rows;
}

namespace {

void check(const SurgeSteps& setting) {
  SLUICE_CHECK(setting.stages >= 1, "a pipeline has stages");
  SLUICE_CHECK(is_probability(setting.coverage), "a coverage lies in [0, 1]");
  SLUICE_CHECK(is_positive(setting.level_interval) && is_time(setting.restart), "a level takes some time");
}

// The first step at or after `time`; a time that rounding put just behind a step belongs to it.
double next_step(double time) {
  constexpr double kRounding = 1e-9;
  return std::ceil(time - kRounding);
}

}  // namespace

double surge_step_speedup(const SurgeSteps& setting) {
  check(setting);
  const double h = setting.coverage, n = setting.stages;
  // The first level would come after the verdict that it was to foresee: every token enters as a new root.
  if (setting.restart + setting.level_interval > n) return 1.0;

  // (1 - h) E[ceil(restart + G interval)], the sum over g cut where rounding up no longer shows: what remains is
  // h^g (its probability) times the mean of an unrounded line and half a step.
  constexpr int kSummed = 1 << 16;
  constexpr double kNegligible = 1e-17;
  double rate = 0.0, reached = h;  // reached: P(G >= g) = h^g
  int g = 1;
  for (; g < kSummed && reached > kNegligible; ++g, reached *= h)
    rate += (1.0 - h) * (1.0 - h) * reached * next_step(setting.restart + g * setting.level_interval);
  rate += reached * ((1.0 - h) * (setting.restart + 0.5 + g * setting.level_interval) + h * setting.level_interval);
  return n / ((1.0 - h) * n + rate);
}

double surge_lower_bound(const SurgeSteps& setting) {
  check(setting);
  const double n = setting.stages, h = setting.coverage;
  const double hit_steps = std::min(n, next_step(setting.level_interval));
  return n / (n * (1.0 - h) + h * hit_steps);
}

}  // namespace sluice::theory

// Every formula against a simulation of what it assumes, and against the papers' own figures where they print them.
#include "theory/theory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>

#include "support/broken.h"
#include "theory/draws.h"

namespace sluice::theory {
namespace {

// --- Chains --------------------------------------------------------------------------------------------------------

TEST(Chain, AcceptsAGeometricNumberOfTokens) {
  for (const auto& [acceptance, lookahead] : {std::pair{0.3, 2}, {0.7, 4}, {0.9, 8}, {1.0, 5}, {0.0, 3}}) {
    Draws draws(1);
    constexpr int kRounds = 200000;
    std::vector<double> seen(static_cast<size_t>(lookahead) + 1);
    for (int i = 0; i < kRounds; ++i) seen[static_cast<size_t>(draws.accepted(acceptance, lookahead))] += 1.0 / kRounds;
    const auto lengths = accepted_length_distribution(acceptance, lookahead);
    ASSERT_EQ(lengths.size(), seen.size());
    double tokens = 0.0;
    for (size_t k = 0; k < seen.size(); ++k) {
      EXPECT_NEAR(seen[k], lengths[k], 0.01);
      tokens += seen[k] * (static_cast<double>(k) + 1.0);
    }
    expect_close(tokens, expected_round_tokens(acceptance, lookahead));
  }
}

TEST(Chain, YieldsTheClosedFormOfThePapers) {
  EXPECT_DOUBLE_EQ(expected_round_tokens(0.8, 6), (1.0 - std::pow(0.8, 7)) / (1.0 - 0.8));
  EXPECT_DOUBLE_EQ(expected_round_tokens(1.0, 6), 7.0);
  EXPECT_DOUBLE_EQ(expected_round_tokens(0.8, 0), 1.0);
}

TEST(Sd, SpeedupIsThatOfRoundsThatDraftThenVerify) {
  for (const auto& [acceptance, lookahead, ratio] : {std::tuple{0.6, 3, 4.0}, {0.8, 6, 10.0}, {0.9, 8, 2.0}}) {
    Draws draws(2);
    double tokens = 0.0, time = 0.0;
    for (int round = 0; round < 200000; ++round) {
      for (int k = 0; k < lookahead; ++k) time += 1.0 / ratio;
      time += 1.0;
      tokens += draws.accepted(acceptance, lookahead) + 1;
    }
    expect_close(tokens / time, sd_speedup(acceptance, lookahead, ratio));
  }
}

// --- SpecPipe and SPD ----------------------------------------------------------------------------------------------

// Levels follow each other through stages that each start as soon as they can; a miss empties all of them.
double simulate_time_between_tokens(const std::vector<double>& stages, double hit, uint64_t seed) {
  Draws draws(seed);
  std::vector<double> free(stages.size(), 0.0);
  double now = 0.0;
  constexpr int kTokens = 200000;
  for (int token = 0; token < kTokens; ++token) {
    double at = 0.0;  // the next level is waiting before the first stage
    for (size_t i = 0; i < stages.size(); ++i) at = free[i] = std::max(at, free[i]) + stages[i];
    now = at;
    if (!draws.chance(hit)) std::fill(free.begin(), free.end(), now);
  }
  return now / kTokens;
}

TEST(SpecPipe, TimeBetweenTokensIsThatOfAPipelineFlushedByMisses) {
  const std::vector<std::vector<double>> pipelines = {
      {0.05}, {0.02, 0.02, 0.02, 0.02}, std::vector<double>(8, 0.0378), {0.01, 0.04, 0.02}, {0.05, 0.01, 0.01, 0.03}};
  for (const auto& stages : pipelines)
    for (const double hit : {0.0, 0.5, 0.9, 0.98, 1.0})
      expect_close(simulate_time_between_tokens(stages, hit, 3), specpipe_time_between_tokens(stages, hit));
}

// All stages step together. A verdict at the end of a step either finds its successor one stage behind, or nothing.
TEST(SpecPipe, SynchronisedStepsTakeAsLongAsTheSlowestStage) {
  for (const auto& stages : {std::vector<double>{0.01, 0.04, 0.02}, {0.05}, {0.03, 0.03, 0.01, 0.02}})
    for (const double hit : {0.0, 0.7, 0.95, 1.0}) {
      Draws draws(5);
      const double step = *std::max_element(stages.begin(), stages.end());
      double time = 0.0;
      constexpr int kTokens = 200000;
      for (int token = 0; token < kTokens; ++token)
        for (size_t ahead = draws.chance(hit) ? 1 : stages.size(); ahead > 0; --ahead) time += step;
      expect_close(time / kTokens, specpipe_synchronised_time_between_tokens(stages, hit));
    }
  // docs/theory.md: the example on which the readings of eq. (1) differ.
  const std::vector<double> example = {0.010, 0.040, 0.020};
  EXPECT_NEAR(specpipe_time_between_tokens(example, 0.9), 0.043, 1e-12);
  EXPECT_NEAR(specpipe_synchronised_time_between_tokens(example, 0.9), 0.048, 1e-12);
}

TEST(SpecPipe, EqualStagesGiveEquationTwo) {
  const double t = 0.0378, p = 0.95;
  const int n = 8;
  EXPECT_NEAR(specpipe_time_between_tokens(std::vector<double>(n, t), p), t * (1 + (n - 1) * (1 - p)), 1e-12);
  EXPECT_NEAR(n * t / specpipe_time_between_tokens(std::vector<double>(n, t), p), level_speedup(n, p), 1e-12);
}

TEST(SpecPipe, HitRateAndSpeedupDetermineEachOther) {
  for (const int stages : {2, 8, 16})
    for (const double hit : {0.0, 0.7, 0.95, 1.0})
      EXPECT_NEAR(hit_of_level_speedup(stages, level_speedup(stages, hit)), hit, 1e-12);
}

// At each step one token enters and all move on; as one leaves the last stage, the speculation behind it is tested.
TEST(Spd, EquivalentLengthIsTheLevelSpeedupOfItsAcceptance) {
  for (const auto& [stages, acceptance] : {std::pair{4, 0.6}, {8, 0.85}, {16, 0.95}}) {
    Draws draws(4);
    std::deque<int> depths;  // stages behind each token in flight, the youngest in front
    int tokens = 0, steps = 0;
    while (tokens < 200000) {
      ++steps;
      depths.push_front(0);
      for (int& depth : depths) ++depth;
      if (depths.back() < stages) continue;
      depths.pop_back();
      ++tokens;
      if (!draws.chance(acceptance)) depths.clear();
    }
    expect_close(equivalent_acceptance_length(stages, tokens, steps), level_speedup(stages, acceptance));
  }
}

TEST(Spd, SpeedupsAreThoseOfThePapersTables) {
  constexpr double kLayers = 32, kPrinted = 0.0051 + 0.005;  // both columns are rounded
  EXPECT_NEAR(eagle_speedup(2.70, 3, 1, kLayers), 2.47, kPrinted);
  EXPECT_NEAR(eagle_speedup(4.40, 7, 1, kLayers), 3.61, kPrinted);
  EXPECT_NEAR(eagle_speedup(5.97, 15, 1, kLayers), 4.07, kPrinted);
  EXPECT_NEAR(ppsd_speedup(1.67, 4, 1, kLayers), 1.49, kPrinted);
  EXPECT_NEAR(ppsd_speedup(1.93, 8, 1, kLayers), 1.54, kPrinted);
  EXPECT_NEAR(ppsd_speedup(3.31, 8, 2, kLayers), 2.20, kPrinted);  // table 2: SPD on output states
}

// The definition, in time: N tokens of one target pass each, against K steps of a stage and a module each.
TEST(Spd, PpsdAndEagleAreTheirTimelines) {
  const double tokens = 100, steps = 250, layers = 32, module = 2;
  const int stages = 8, drafts = 7;
  const double ppsd_time = steps * (layers / stages + module) / layers;
  EXPECT_NEAR(ppsd_speedup(equivalent_acceptance_length(stages, tokens, steps), stages, module, layers),
              tokens / ppsd_time, 1e-12);
  const double rounds = 25, eagle_time = rounds * (drafts * module + layers) / layers;
  EXPECT_NEAR(eagle_speedup(tokens / rounds, drafts, module, layers), tokens / eagle_time, 1e-12);
}

// --- PipeSpec ------------------------------------------------------------------------------------------------------

TEST(PipeSpec, IsItsTwoStateChain) {
  for (const auto& [acceptance, window] : {std::pair{0.2, 1}, {0.5, 3}, {0.8, 4}, {0.95, 8}, {1.0, 4}}) {
    Draws draws(5);
    constexpr int kSteps = 200000;
    bool verifies = false;
    int verifications = 0, tokens = 0;
    for (int step = 0; step < kSteps; ++step) {
      const int accepted = verifies ? draws.accepted(acceptance, window) : 0;
      tokens += accepted + 1;
      verifications += verifies;
      // A rejection leaves nothing to verify; otherwise the model's own last token has to agree as well.
      verifies = (!verifies || accepted == window) && draws.chance(acceptance);
    }
    expect_close(static_cast<double>(verifications) / kSteps, pipespec_verification_share(acceptance, window));
    expect_close(static_cast<double>(tokens) / kSteps, pipespec_speedup(acceptance, window));
  }
}

TEST(PipeSpec, TheoremOneItIsFasterThanPlainDecoding) {
  for (double acceptance = 0.01; acceptance < 1.0; acceptance += 0.01)
    for (int window = 1; window <= 16; ++window) EXPECT_GT(pipespec_speedup(acceptance, window), 1.0);
  EXPECT_EQ(pipespec_speedup(0.0, 4), 1.0);
}

// The notes compare speculative decoding with rho = 1, which no acceptance below 1 allows.
TEST(PipeSpec, TheoryDoesNotPutItAboveSpeculativeDecodingWithAFastDraft) {
  EXPECT_LT(pipespec_speedup(0.9, 8), sd_speedup(0.9, 8, 100.0));
  EXPECT_GT(pipespec_speedup(0.9, 8), sd_speedup(0.9, 8, 8.0));
  EXPECT_GT(expected_round_tokens(0.9, 8), sd_speedup(0.9, 8, 100.0)) << "the comparison as printed";
}

// With a window as long as what the draft makes in one target pass, the claim holds.
TEST(PipeSpec, BeatsSpeculativeDecodingWhereTheWindowFillsATargetPass) {
  for (double acceptance = 0.05; acceptance < 1.0; acceptance += 0.05)
    for (int window = 1; window <= 64; ++window)
      EXPECT_GT(pipespec_speedup(acceptance, window), sd_speedup(acceptance, window, window));
}

TEST(PipeSpec, LongWindowsApproachOneOverOneMinusAlphaSquared) {
  for (const double acceptance : {0.3, 0.7, 0.9})
    EXPECT_NEAR(pipespec_speedup(acceptance, 1000), 1.0 / (1.0 - acceptance * acceptance), 1e-9);
}

// --- Surge ---------------------------------------------------------------------------------------------------------

// A renewal process in continuous time: a miss costs a pass through the pipeline, each hit of the run after it a draft
// pass. `run` draws how many hits follow a miss.
template <class Run>
std::pair<double, double> simulate_surge(double draft_time, double pipeline_time, const Run& run) {
  double tokens = 0.0, hits = 0.0, time = 0.0;
  while (tokens < 200000) {
    const int length = run();
    time += pipeline_time + length * draft_time;
    tokens += 1 + length;
    hits += length;
  }
  return {tokens * pipeline_time / time, hits / tokens};
}

TEST(Surge, IsARenewalProcess) {
  for (const auto& [coverage, draft, pipeline] :
       {std::tuple{0.9, 0.017, 0.3024}, {0.7, 0.02, 0.2}, {0.5, 0.1, 0.2}, {0.98, 0.005, 0.3}}) {
    Draws draws(6);
    const auto run = [&draws, h = coverage] {
      int length = 0;
      while (draws.chance(h)) ++length;
      return length;
    };
    expect_close(simulate_surge(draft, pipeline, run).first, surge_speedup(coverage, draft, pipeline));
  }
}

TEST(Surge, NeedsOnlyTheShareOfHitsWhateverTheirRuns) {
  Draws draws(7);
  int last = 0;
  const auto run = [&] { return last = last > 10 ? 0 : 2 + static_cast<int>(20 * draws.uniform()); };
  const auto [speedup, coverage] = simulate_surge(0.02, 0.25, run);
  EXPECT_NEAR(speedup, surge_speedup(coverage, 0.02, 0.25), 1e-6);
}

// The tree holds 0.98 of the tokens, but half of these only just: they entered shortly before their turn.
TEST(Surge, IsTheMeanGapBetweenEntriesAndNotTheShareThatTheTreeHeld) {
  constexpr double kDraft = 0.01, kPipeline = 0.25;
  Draws draws(10);
  std::vector<double> gaps, verdicts = {kPipeline};
  int in_time = 0, held = 0;
  constexpr int kTokens = 200000;
  double entered = 0.0;
  for (int token = 0; token < kTokens; ++token) {
    const double kind = draws.uniform();
    const bool timely = kind < 0.49, late = !timely && kind < 0.98;
    in_time += timely;
    held += timely || late;
    const double gap = timely ? kDraft : late ? kDraft + draws.uniform() * (kPipeline - kDraft) : kPipeline;
    gaps.push_back(gap);
    entered += gap;
    verdicts.push_back(entered + kPipeline);  // it left the last stage a pass after it had entered the first
  }
  const double speedup = kPipeline * kTokens / (verdicts.back() - verdicts.front());
  EXPECT_NEAR(speedup, speedup_of_entries(kPipeline, gaps), 1e-6);
  EXPECT_GT(surge_speedup(static_cast<double>(held) / kTokens, kDraft, kPipeline), 4.0 * speedup);
  EXPECT_LT(surge_speedup(static_cast<double>(in_time) / kTokens, kDraft, kPipeline), speedup);
}

struct Rows {
  int of_level = 0;  // 0: no limit
  int budget = 0;
};

// Step by step: rows of levels enter once they are drafted and there is room, and leave `stages` steps later; a level
// is in once its last row is, and the verdicts of the levels of a step come in a burst.
double simulate_surge_steps(const SurgeSteps& setting, Rows rows, uint64_t seed) {
  Draws draws(seed);
  double tokens = 0.0, steps = 0.0;
  while (tokens < 200000) {
    std::deque<int> pipeline(1, 1);  // levels by step, the youngest in front; the root enters alone
    int drafted = 0, entered = 0, entered_rows = 0;
    bool alive = true;
    for (int step = 1; alive; ++step) {  // the end of a step
      steps += 1.0;
      if (pipeline.size() == static_cast<size_t>(setting.stages)) {
        for (int level = pipeline.back(); alive && level > 0; --level) {
          tokens += 1.0;
          alive = draws.chance(setting.coverage);
        }
        pipeline.pop_back();
      }
      while (setting.restart + (drafted + 1) * setting.level_interval <= step + 1e-9) ++drafted;
      const int before = entered;
      if (rows.of_level == 0) {
        entered = drafted;
      } else {
        entered_rows += std::min(rows.budget, drafted * rows.of_level - entered_rows);
        entered = entered_rows / rows.of_level;
      }
      pipeline.push_front(entered - before);
    }
  }
  return tokens * setting.stages / steps;
}

TEST(Surge, InStepsIsAPipelineThatEntersLevelsInBursts) {
  for (const auto& setting : {SurgeSteps{7, 0.95, 0.5}, SurgeSteps{7, 0.95, 1.0}, SurgeSteps{7, 0.8, 1.0 / 3},
                              SurgeSteps{8, 0.9, 0.45}, SurgeSteps{14, 0.9, 1.7}, SurgeSteps{4, 0.6, 2.5},
                              SurgeSteps{8, 0.9, 0.45, 0.3}, SurgeSteps{8, 0.85, 1.2, 1.2}, SurgeSteps{1, 0.9, 0.2}})
    expect_close(simulate_surge_steps(setting, {}, 8), surge_step_speedup(setting));
}

TEST(Surge, InStepsOfOneLevelIsTheLevelRule) {
  for (const int stages : {1, 4, 14})
    for (const double coverage : {0.0, 0.8, 0.999, 1.0}) {
      const SurgeSteps setting{stages, coverage, 1.0};
      EXPECT_NEAR(surge_step_speedup(setting), level_speedup(stages, coverage), 1e-9);
      EXPECT_NEAR(surge_lower_bound(setting), level_speedup(stages, coverage), 1e-9);
      EXPECT_NEAR(surge_speedup(coverage, 1.0, stages), level_speedup(stages, coverage), 1e-9);
    }
}

TEST(Surge, InStepsHasAClosedFormWhereLevelsFitTheStep) {
  const double h = 0.9;
  for (const int levels : {2, 3, 5})
    EXPECT_NEAR(surge_step_speedup({7, h, 1.0 / levels}), 7 / ((1 - h) * (7 + h / (1 - std::pow(h, levels)))), 1e-9);
}

TEST(Surge, InStepsSumsLongRunsAsWellAsShortOnes) {
  EXPECT_NEAR(surge_step_speedup({8, 1.0, 0.4}), 20.0, 1e-9);
  EXPECT_NEAR(surge_step_speedup({8, 1.0 - 1e-9, 0.4}), 20.0, 1e-4);
  EXPECT_NEAR(surge_step_speedup({8, 0.9999, 0.5}), 8 / (1e-4 * (8 + 0.9999 / (1 - 0.9999 * 0.9999))), 1e-3);
}

TEST(Surge, LiesBetweenTheLevelRuleOfASlowDraftAndItsLimits) {
  for (const int stages : {2, 7, 16})
    for (const double coverage : {0.3, 0.8, 0.98})
      for (const double interval : {0.1, 0.4, 0.5, 0.9, 1.0, 1.3, 1.9, 2.0, 6.5, 20.0}) {
        const SurgeSteps setting{stages, coverage, interval};
        const double steps = surge_step_speedup(setting), limit = surge_speedup(coverage, interval, stages);
        EXPECT_LE(surge_lower_bound(setting), steps + 1e-9);
        EXPECT_NEAR(surge_lower_bound(setting), surge_step_speedup({stages, coverage, std::ceil(interval)}), 1e-9);
        EXPECT_LE(steps, limit + 1e-9);
        EXPECT_LE(limit, surge_draft_bound(interval, stages) + 1e-9);
        EXPECT_LE(limit, surge_miss_bound(coverage));
      }
}

TEST(Surge, IsHeldBackByItsRowsAsByASlowDraft) {
  for (const Rows rows : {Rows{10, 16}, {8, 32}, {24, 16}}) {
    const SurgeSteps drafts{7, 0.95, 0.2};
    const double per_step = static_cast<double>(rows.budget) / rows.of_level;
    const double speedup = surge_step_speedup({7, 0.95, std::max(0.2, 1.0 / per_step)});
    expect_close(simulate_surge_steps(drafts, rows, 9), speedup);
    EXPECT_LT(speedup, surge_row_bound(7, rows.of_level, rows.budget));
  }
  EXPECT_NEAR(surge_row_bound(7, 10, 16), surge_step_speedup({7, 1.0, 10.0 / 16}), 1e-9);
}

TEST(Surge, IsPlainDecodingWhereTheDraftIsSlowerThanThePipeline) {
  EXPECT_EQ(surge_speedup(0.9, 2.0, 1.0), 1.0);
  EXPECT_EQ(surge_step_speedup({4, 0.9, 4.1}), 1.0);
  EXPECT_EQ(surge_lower_bound({4, 0.9, 4.1}), 1.0);
  EXPECT_EQ(surge_step_speedup({4, 0.9, 2.5, 2.0}), 1.0);
}

TEST(Theory, RefusesWhatIsNoProbabilityAndNoTime) {
  EXPECT_BROKEN(level_speedup(8, 1.1), "hit rate");
  EXPECT_BROKEN(surge_speedup(std::nan(""), 1.0, 8.0), "coverage");
  EXPECT_BROKEN(specpipe_time_between_tokens({}, 0.5), "stages");
  EXPECT_BROKEN(speedup_of_entries(1.0, {}), "one after the other");
}

}  // namespace
}  // namespace sluice::theory

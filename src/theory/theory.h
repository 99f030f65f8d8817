// What the papers' formulas, and ours for `surge`, expect of a method: pure functions from a few measured numbers to
// tokens, times and speed-ups. docs/theory.md derives each and says what it leaves out.
//
// Probabilities lie in [0, 1]; times are in the unit that the function names, and not negative. Numbers outside a
// function's domain are broken invariants (SLUICE_CHECK), not errors.
#pragma once

#include <span>

#include "theory/fan_out.h"

namespace sluice::theory {

// --- What several papers share -------------------------------------------------------------------------------------

// Tokens that one verification of a chain of `lookahead` drafted tokens yields, the target's own included, when each is
// accepted with probability `acceptance` given that those before it were: (1 - a^(K+1)) / (1 - a).
double expected_round_tokens(double acceptance, int lookahead);

// The share of steps that a chain of two states spends in the one it keeps with probability `stay` and enters from the
// other with probability `enter`. Needs stay < 1 or enter > 0.
double steady_state_share(double stay, double enter);

// Speed-up over plain decoding of drafting `lookahead` tokens, then verifying them in one target pass, with a draft
// that makes `draft_ratio` > 0 tokens in the time of a target pass. PipeSpec (its SD(P_a), with gamma = lookahead, c =
// draft_ratio): (1 - a^(gamma+1)) / ((1 - a) (gamma / c + 1)).
double sd_speedup(double acceptance, int lookahead, double draft_ratio);

// --- SpecPipe: one level of the tree a step ------------------------------------------------------------------------

// Expected seconds between tokens when the next token is in the tree with probability `hit`, the draft keeps up, and
// stage i takes stage_seconds[i] (at least one). SpecPipe eq. (1) as we reconstruct it:
// max_i t_i + (1 - p) (sum_i t_i - max_i t_i), which for equal stages is eq. (2): t (1 + (n - 1) (1 - p)). A hit enters
// one step after its predecessor; where later ones count as hits too, the time is at least this.
double specpipe_time_between_tokens(std::span<const double> stage_seconds, double hit);

// The same where all stages step together, each step as long as the slowest stage: max_i t_i (1 + (n - 1) (1 - p)).
double specpipe_synchronised_time_between_tokens(std::span<const double> stage_seconds, double hit);

// Speed-up of one level a step over the plain pipeline of `stages` equal stages: n / (1 + (n - 1) (1 - p)). Also SPD's
// expected equivalent acceptance length when a speculated token is accepted with probability `hit`.
double level_speedup(int stages, double hit);

// The hit probability at which level_speedup is `speedup`, from 1 to `stages`; needs stages > 1.
double hit_of_level_speedup(int stages, double speedup);

// --- PipeSpec: a hierarchy of models that never wait ---------------------------------------------------------------

// rho_i: the share of a model's steps that verify, rather than generate one token. alpha / (1 - alpha^(gamma+1) +
// alpha): it enters verification when its own token agrees with its predecessor, and stays when all `window` >= 1
// tokens and the one after them do.
double pipespec_verification_share(double acceptance, int window);

// E(N(M_i)), tokens a step of model i: (1 - rho) + rho (1 - alpha^(gamma+1)) / (1 - alpha). For the last model this is
// Theorem 1: the speed-up over plain decoding, above 1 whenever acceptance > 0.
double pipespec_speedup(double acceptance, int window);

// --- SSD: speculation for the outcomes of the verification under way -----------------------------------------------

// A round is one target pass, whose length is the unit of time here.
struct SsdRound {
  double tokens = 1.0;               // expected_round_tokens of a speculation that was cached
  double hit_rate = 0.0;             // share of rounds that found theirs cached
  double prespeculation_time = 0.0;  // T_p: drafting for all cached outcomes, beside the verification
  double fallback_time = 0.0;        // T_b: drafting after a miss, while the target waits
  double fallback_tokens = 1.0;      // expected_round_tokens of what the fallback drafts
};

// Expected tokens a round over its expected time, hence the speed-up over plain decoding:
// (h E_hit + (1 - h) E_miss) / (h max(1, T_p) + (1 - h) (1 + T_b)).
double ssd_speedup(const SsdRound& round);

// --- SPD: section 4.2 ----------------------------------------------------------------------------------------------

// SPD eq. (4), L'_acc = n N / K: `tokens` N generated in `steps` K of a pipeline of `stages` n; SPD's speed-up itself.
double equivalent_acceptance_length(int stages, double tokens, double steps);

// S_ppsd = L'_acc L / (L_s n + L): a module of `module_layers` L_s runs after each step of a target of `layers` L.
double ppsd_speedup(double equivalent_length, int stages, double module_layers, double layers);

// S_eagle = L_acc L / (L_s m + L): a head of `head_layers` L_s runs `draft_steps` m times before each target pass.
double eagle_speedup(double acceptance_length, int draft_steps, double head_layers, double layers);

// --- Surge: ours ---------------------------------------------------------------------------------------------------

// Speed-up over the plain pipeline, whatever the method: every token of the text is computed in one pass of
// `pipeline_time` T > 0 that begins when it enters, so tokens come out as far apart as they entered. T over the mean of
// `gaps`, the times from the entry of one token of the text to that of the next; at least one, in sum more than 0.
double speedup_of_entries(double pipeline_time, std::span<const double> gaps);

// That for gaps of two kinds: a share `coverage` h of the tokens enters one draft pass of `draft_time` t_d after the
// token before, all others as roots after its verdict: 1 / ((1 - h) + h t_d / T). A draft slower than the pipeline
// gives 1. Stages are infinitely short here. h is the share of hits in time: a token that the tree held but that
// entered later than a draft pass costs its own gap, and counted as a hit it makes this too good.
double surge_speedup(double coverage, double draft_time, double pipeline_time);

// No surge is faster than its draft: T / t_d, at least 1. Needs draft_time > 0.
double surge_draft_bound(double draft_time, double pipeline_time);

// Nor than its misses allow, each of which costs a pass through the pipeline: 1 / (1 - h). Needs coverage < 1.
double surge_miss_bound(double coverage);

// Nor than its rows can enter: n R / w, if each token's level takes `level_rows` w > 0 and a step `row_budget` R > 0.
double surge_row_bound(int stages, double level_rows, double row_budget);

// Surge in whole pipeline steps. All times are in steps, the time of a stage.
struct SurgeSteps {
  int stages = 1;
  double coverage = 0.0;        // h
  double level_interval = 1.0;  // from level to level: > 0, max(t_d, w / R) steps
  double restart = 0.0;         // after a miss the draft starts so much later
};

// The same where levels enter at the starts of steps only: a level that is ready between two waits for the next. A miss
// and the G hits after it, P(G = g) = (1 - h) h^g, take n steps, and ceil(restart + g level_interval) more if g > 0. At
// an interval of 1 that is level_speedup. Without a restart it lies between surge_lower_bound and surge_speedup.
double surge_step_speedup(const SurgeSteps& setting);

// A level at every k-th step, k = ceil(level_interval): what the rule of one level a step comes to when it waits for a
// slow draft. n / (n (1 - h) + h k).
double surge_lower_bound(const SurgeSteps& setting);

}  // namespace sluice::theory

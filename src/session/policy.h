// Numbers of a session that somebody chose: what is tried, and what is refused before it would fail.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::policy {

// Tokens of a context, unless another one is asked for: a model's own may need more memory than there is.
inline constexpr int32_t kDefaultContext = 8192;
// Drafting runs ahead of what enters the target: a draft model has so many cells more.
inline constexpr int32_t kDraftedAhead = 1024;
// Rows of prompts in a batch. One stage: long enough to use wide products well; several, beside who answers and until
// it is known what passes take: also short enough to fill the pipeline.
inline constexpr int32_t kPromptRowsAlone = 256, kPromptRowsPiped = 64;
// Draft models of a hierarchy; each has a pipeline of its own.
inline constexpr size_t kMostDrafts = 8;
// Bytes of --ngram-corpus; they are sorted in some ten seconds.
inline constexpr size_t kLongestCorpus = size_t{32} << 20;
// EAGLE-3's head, taken by `auto`, drafts no further than to a path that is so likely.
inline constexpr double kSureChain = 0.5;

// Seconds that a host may be silent: with the quarter of a second between heartbeats and looks at them it is noticed
// within one that it is gone. What that costs, if it was only busy, is computing a text again. A rank that is gone ends
// its job, so it is given longer.
inline constexpr double kPatience = 0.75, kPatienceOfRanks = 5.0;

// Seconds after which an answer looks for an interrupt although nothing has happened.
inline constexpr double kLookUp = 0.2;

// Of methods that promise so much of what the fastest does a plan takes the surest: from a few texts they can't be told
// apart, and one that owes its lead to one of them disappoints on others.
inline constexpr double kAboutAsFast = 0.95;

// AutoTrial: a turn is kTurn tokens, the first kWarmUp of which (the pipeline fills) don't count. The loser gets
// another turn, since a text may become easier to guess, as often as such turns cost kTrialsCost of the time; with each
// what was counted before fades.
inline constexpr int64_t kTurn = 16, kWarmUp = 4, kShortestPeriod = 2 * kTurn, kLongestPeriod = 1024;
inline constexpr double kTrialsCost = 0.05, kFades = 0.5;
// Plain decoding is no match for a method that is so many times as fast; kTells of its tokens show it.
inline constexpr double kNoMatch = 1.15;
inline constexpr int64_t kTells = 4;
// In an answer that may get so long there is something to be learnt about a method that was named.
inline constexpr int64_t kWorthATrial = 3 * kTurn;
// A method is clearly slower if plain decoding is so many times as fast: one turn is a rough measurement.
inline constexpr double kClearly = 1.25;

}  // namespace sluice::policy

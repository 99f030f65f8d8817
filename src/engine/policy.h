// Numbers of the coordinator that somebody chose. Other ones make it slower, or less fair, but no token another one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::policy {

// Requests that wait for cells; whoever comes then is told so, instead of waiting without end.
inline constexpr size_t kMostWaiting = 1024;

// Sequences at a time of a model that folds what it knows of them: each has a state, up to a megabyte a layer.
inline constexpr size_t kMostFolded = 4;

// A prompt with so many tokens that are not there yet is worth a copy of its state, from which a later turn goes on
// that shows the answer otherwise. So many tokens are left behind it, in which templates begin an answer.
inline constexpr size_t kWorthACheckpoint = 64, kBehindCheckpoint = 16;

// --- what enters a batch (Scheduler, Price)

// Of a batch's rows at most so many are for prompts, as long as nobody says better: half of it, so that those who
// answer find room beside them.
inline constexpr int32_t kPromptChunk = 128;
// Of a batch's rows at least such a part is for prompts as long as there are any.
inline constexpr size_t kPromptPart = 4;
// A prompt enters at least so many rows at a time: attention takes them together.
inline constexpr size_t kPromptQuantum = 16;
// Of what prompts enter by at a time so many times the widest that was seen is tried, if it promises to be so much
// faster: one batch that turns out dear holds up all stages behind the first.
inline constexpr size_t kWiderChunk = 2;
inline constexpr double kWiderGain = 1.05;
// What is so much less likely (a log) than the last guess that found room in a batch will find none in the next.
inline constexpr double kLikelyToChange = -0.1;
// When all found room, those are looked for again that are so much less likely.
inline constexpr double kMoreRoom = -1.0;
// Committed tokens that a draft model has not seen get a pass of their own if there are so many: fewer cost next to
// nothing beside its next question.
inline constexpr size_t kWorthAPass = 16;
// A head whose request does not ask takes the target's states all the same once there are so many, since somebody has
// to keep them.
inline constexpr size_t kBacklog = 256;
// What a row saves must exceed its price by so much: both are estimates, and of many the best look better than they
// are.
inline constexpr double kMargin = 1.1;
// Seconds from token to token, of one request that has not said enough yet: longer than any pass, so that its tree or
// chain is tried as it is.
inline constexpr double kUnknownPace = 1.0;

// --- who is asked (Drafting, Asking)

// A request is asked for more than its share of a batch, since others may want less: for up to so many times that, and
// no more than makes all proposals together so many times a batch, as they were of late.
inline constexpr double kMostOverShare = 2.0, kProposed = 1.2;
// A token so likely by the text is foretold: it becomes a node before the draft model has seen it.
inline constexpr float kForetold = 0.8f;
// Where an answer's grammar permits so few tokens and a source said none of them, they are what is guessed.
inline constexpr size_t kFewPermitted = 8;
// Sources that answer at once are asked in so many batches before it is judged whether that pays, and where it does
// not, in one of so many: a text may become easier to guess.
inline constexpr int64_t kAskedAtFirst = 4, kAskedAgain = 32;
inline constexpr double kNewestAnswer = 1.0 / 8;  // of the averages of what asking takes and saves

// --- what is believed of a request (Request, Trust)

inline constexpr double kNewestToken = 1.0 / 16;  // of the average time from token to token
inline constexpr size_t kPaceTokens = 4;          // before which there is none: the pipeline fills
inline constexpr double kNewestGuess = 1.0 / 32;  // of the sums of what was expected and what came
// What others have shown counts as so many guesses; as long as nobody has shown anything, half of what a source says is
// believed.
inline constexpr double kTrustBefore = 2.0, kFirstTrust = 0.5;

// --- what is worth waiting for (engine_feed.cpp, Traffic)

// The part of a pass for which it pays to wait for news, and how much later than expected they may come: what enters
// without them costs a step.
inline constexpr double kSoon = 0.05, kLate = 0.02;
// The part of a pass for which the slowest stage may rather wait than one more batch enter, in which every verdict
// would come later.
inline constexpr double kMayIdle = 0.1;
inline constexpr double kNewestPass = 1.0 / 8;  // of the average time of a stage's passes
// The part of a pass that the way to the first stage and back may take and its word that it is free still be waited
// for: what enters then knows all that has come, and the stage idles no longer than it may.
inline constexpr double kNear = 0.1;
inline constexpr double kForgetsTrip = 1.0 / 64;  // of a way that was shorter than any since

}  // namespace sluice::policy

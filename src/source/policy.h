// Numbers of the sources that somebody chose, mostly by what was right most often on code, maths and chat
// (docs/experiments.md). Other ones make guesses worse, but no token another one.
#pragma once

#include <array>
#include <cstddef>

namespace sluice::policy {

// --- n-grams (NgramSource, KnownText)

// Tokens of the longest context.
inline constexpr size_t kLongestContext = 10;
// A context proposes only so many continuations.
inline constexpr size_t kWidestContext = 32;
// e of the interpolation. Witten and Bell's is 1, which trusts a long match too much, since its suffixes are no
// independent witnesses; with this one the first candidate's probability comes close to how often it is right.
inline constexpr double kEscape = 2.0;
// Of a context that a corpus holds more often, so many occurrences stand for all, so that a look-up
// has a bounded price.
inline constexpr size_t kOccurrences = 256;

// --- fusion of several sources (Fusion)

// What a source holds less likely than this it doesn't mention, unless it is the main one.
inline constexpr double kLeastMentioned = 0.05;
// Of what the main source leaves to all tokens that it doesn't mention, the part that one of them gets.
inline constexpr double kUnmentioned = 1e-3;
// Steps of the gradient descent; the latter of w_0, whose log odds reach far.
inline constexpr double kRate = 0.05, kMainRate = 0.01;
// Probabilities of a source's first candidate at which another set of weights begins.
inline constexpr std::array kSureness = {0.3, 0.5, 0.7, 0.9, 0.99};
// w of the surest set before a source has been put to the test.
inline constexpr double kUntested = 0.1;

// --- draws

// So much below the best that a draft model's own filters leave (logits) its others are ranked: the target's filters
// may keep what its would not, but none of that is the best guess.
inline constexpr double kFilteredBelow = 3.0;
// Given that none before it was accepted, a drawn token is accepted with about a + (1 - a) q. With the heads that come
// with the program the first is accepted in 20 % of the cases where q is below 0.05, in 23 % around 0.1, 42 % around
// 0.3 and 66 % above 0.5; between 0.2 and 0.4, a makes no difference to the length of what is accepted.
inline constexpr double kAcceptedAnyhow = 0.3;

}  // namespace sluice::policy

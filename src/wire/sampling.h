// How a sequence's tokens are drawn and its guesses verified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace sluice {

// How guesses are verified.
enum class Rule : uint8_t {
  kMatch,   // the target draws its own token and the tree holds it or not: one seed, one text, whatever the method
  kReject,  // speculative sampling: guesses drawn from q are accepted with p / q; keeps the distribution, not the bits
  // Lossy (SpecPipe section 3.4): another text than the target's own.
  kRelaxed,  // of the children that have entered, the one that the target holds likeliest
  kTopP,     // of those among the target's likeliest tokens that add up to `accept_p`, the one likeliest by its source
};
inline bool is_lossy(Rule rule) { return rule == Rule::kRelaxed || rule == Rule::kTopP; }

// Likeliest tokens that a verdict names at most.
inline constexpr int32_t kMostTopLogprobs = 20;
// Bytes of a grammar at most: it travels with a request, and what is made of it grows faster.
inline constexpr size_t kLongestGrammar = size_t{1} << 18;

// Where a grammar begins that an answer need not follow from its first token on.
struct GrammarTrigger {
  enum class Kind : uint8_t {
    kWord,          // at the first place of `text`
    kPattern,       // of the regular expression: at its first group, or where it begins
    kWholePattern,  // the same, which all that was written so far must match
  };
  Kind kind = Kind::kWord;
  std::string text;
  bool operator==(const GrammarTrigger&) const = default;
};

// What an answer must be (docs/serve.md).
struct AnswerGrammar {
  std::string rules;  // of which `root` is the answer, in xgrammar's EBNF; empty: any text
  std::string begin;  // a text that the grammar has before the answer: the end of the prompt
  // Empty: the answer is of the grammar from its first token on; else from where the first of these comes.
  std::vector<GrammarTrigger> triggers;
  bool empty() const { return rules.empty(); }
  bool operator==(const AnswerGrammar&) const = default;
};

// How the next token is drawn from the logits. The order is: grammar, repetition penalty, presence and frequency
// penalty, logit bias, temperature, top-k, top-p, min-p.
struct SamplingParams {
  float temperature = 0.0f;  // 0: greedy
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;        // 1: off
  float min_p = 0.0f;        // 0: off
  float repeat_penalty = 1.0f;
  // Taken off the logit of each token that the answer holds: once, and as often as it holds it.
  float presence_penalty = 0.0f, frequency_penalty = 0.0f;
  int32_t answer_from = 0;  // the position of the answer's first token
  uint64_t seed = 0;
  uint32_t choice = 0;                              // which of n answers to the same prompt
  std::vector<std::pair<Token, float>> logit_bias;  // added to the logit
  Rule rule = Rule::kMatch;
  float accept_p = 0.9f;     // rule kTopP
  int32_t top_logprobs = 0;  // how many of the likeliest tokens a verdict names, beside the drawn one
  AnswerGrammar grammar;
  bool operator==(const SamplingParams&) const = default;
};

}  // namespace sluice

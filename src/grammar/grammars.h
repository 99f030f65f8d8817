// Which tokens may come next in an answer of a grammar, by xgrammar.
#pragma once

#include <cstdint>

#include "model/model_file.h"
#include "verify/constraint.h"

namespace sluice {

// Seconds of the processor that matching an answer may take: in each call, and what calls so far may have taken beyond
// that, made up for by those that took less. What takes more fails: of a form that can be read in many ways (root ::=
// root root | "a") each token takes longer than the one before.
struct MatchingTime {
  double per_call, beyond;
};
inline constexpr MatchingTime kToJudge = {.per_call = 0.01, .beyond = 0.1};    // the next token of an answer
inline constexpr MatchingTime kToGuide = {.per_call = 0.001, .beyond = 0.02};  // guesses: they only have to pay

// Constraints by grammars that GrammarReader has read, of the first n_logits tokens of a vocabulary. The vocabulary is
// loaded, and each grammar compiled, beside what goes on, which waits when it first needs it. What was compiled is
// kept, for all constraints of the vocabulary in the process. Where a grammar or the vocabulary can't be read after
// all, the constraint throws; it fails when the library does, or when matching takes too much.
//
// Thread safety: what it gives may be called, and each constraint used, by several threads at once.
Constrain constrain_by(const VocabularyPlace& vocabulary, int32_t n_logits, MatchingTime time = kToJudge);
// Compiles a grammar, for constraints that come after. Throws as they do.
void prepare(const AnswerGrammar& grammar, const VocabularyPlace& vocabulary, int32_t n_logits);

}  // namespace sluice

// Which tokens may come next in an answer of a grammar, by xgrammar.
#pragma once

#include <cstdint>

#include "model/model_file.h"
#include "verify/constraint.h"

namespace sluice {

// Constraints by grammars that GrammarReader has read, of the first n_logits tokens of a vocabulary. The vocabulary is
// loaded, and each grammar compiled, beside what goes on, which waits when it first needs it. What was compiled is
// kept, for all constraints of the vocabulary in the process. Where a grammar or the vocabulary can't be read after
// all, the constraint throws.
//
// Thread safety: what it gives may be called, and each constraint used, by several threads at once.
Constrain constrain_by(const VocabularyPlace& vocabulary, int32_t n_logits);
// Compiles a grammar, for constraints that come after. Throws as they do.
void prepare(const AnswerGrammar& grammar, const VocabularyPlace& vocabulary, int32_t n_logits);

}  // namespace sluice

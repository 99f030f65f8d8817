// What the uses of xgrammar share. Of this folder only.
#pragma once

#include <xgrammar/compiler.h>

#include <cstdint>

#include "model/tokenizer.h"

namespace sluice {

// The first n_logits tokens of a vocabulary, as the library wants them. Control tokens are of no grammar, but those
// that end an answer end it.
xgrammar::TokenizerInfo tokens_of(const Tokenizer& tokenizer, int32_t n_logits);

// Keeps what it has compiled, up to a bound.
xgrammar::GrammarCompiler make_compiler(const xgrammar::TokenizerInfo& tokens);

}  // namespace sluice

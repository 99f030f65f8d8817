#include "grammar/xgrammar_use.h"

#include <algorithm>
#include <string>
#include <vector>

namespace sluice {

namespace {

constexpr int64_t kMostKept = int64_t{64} << 20;  // bytes of compiled grammars: a schema's takes some 100 KB

}  // namespace

xgrammar::TokenizerInfo tokens_of(const Tokenizer& tokenizer, int32_t n_logits) {
  std::vector<std::string> pieces;
  std::vector<int32_t> ends;
  for (Token token = 0; token < std::min(tokenizer.size(), n_logits); ++token) {
    pieces.push_back(tokenizer.piece(token));
    if (tokenizer.ends_generation(token)) ends.push_back(token);
  }
  return xgrammar::TokenizerInfo(pieces, xgrammar::VocabType::RAW, n_logits, ends);
}

xgrammar::GrammarCompiler make_compiler(const xgrammar::TokenizerInfo& tokens) {
  return xgrammar::GrammarCompiler(tokens, /*max_threads=*/1, /*cache_enabled=*/true, kMostKept);
}

}  // namespace sluice

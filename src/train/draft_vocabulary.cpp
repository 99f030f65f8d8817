#include "train/draft_vocabulary.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace sluice {

std::vector<Token> choose_draft_vocabulary(const std::vector<Example>& examples, int32_t n_vocab, int32_t size,
                                           const std::vector<Token>& kept) {
  std::vector<int64_t> uses(static_cast<size_t>(n_vocab));
  for (const Example& example : examples)
    for (size_t i = static_cast<size_t>(example.n_prompt); i < example.tokens.size(); ++i)
      ++uses[static_cast<size_t>(example.tokens[i])];
  for (const Token token : kept) uses[static_cast<size_t>(token)] = std::numeric_limits<int64_t>::max();
  std::vector<Token> tokens(static_cast<size_t>(n_vocab));
  std::iota(tokens.begin(), tokens.end(), 0);
  std::stable_sort(tokens.begin(), tokens.end(),
                   [&](Token a, Token b) { return uses[static_cast<size_t>(a)] > uses[static_cast<size_t>(b)]; });
  tokens.resize(static_cast<size_t>(std::min(size, n_vocab)));
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

double coverage(std::span<const Example> examples, const std::vector<Token>& vocabulary) {
  if (vocabulary.empty()) return 1.0;
  int64_t held = 0, all = 0;
  for (const Example& example : examples)
    for (size_t i = static_cast<size_t>(example.n_prompt); i < example.tokens.size(); ++i, ++all)
      held += std::binary_search(vocabulary.begin(), vocabulary.end(), example.tokens[i]);
  return static_cast<double>(held) / static_cast<double>(std::max<int64_t>(1, all));
}

}  // namespace sluice

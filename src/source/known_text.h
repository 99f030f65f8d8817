// A text that is known from the beginning, for n-grams to look things up in.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace sluice {

// The tokens of a text and the order of all its suffixes, by their first policy::kLongestContext + 1 tokens, so that
// the places where a context occurs lie side by side, sorted by what follows it. It takes 8 bytes a token.
//
// Thread safety: it never changes, so that all requests share one.
class KnownText {
 public:
  explicit KnownText(std::vector<Token> text);

  size_t size() const { return text_.size(); }

  // What follows a context: the tokens, the most frequent first (ties: the smaller id), with how often each occurs. Of
  // a context that occurs more than policy::kOccurrences times, so many evenly spaced occurrences stand for all.
  struct Continuation {
    Token token;
    uint32_t count;
  };
  // Empty if the text doesn't hold the context, or ends with the only occurrence. REQUIRES: 1 to
  // policy::kLongestContext tokens.
  std::vector<Continuation> after(std::span<const Token> context) const;

 private:
  std::vector<Token> text_;
  std::vector<uint32_t> suffixes_;  // where they begin, without the last token's own, after which nothing comes
};

}  // namespace sluice

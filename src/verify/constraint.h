// What an answer may be, where that is limited: a grammar, at the place that the answer has come to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "wire/sampling.h"

namespace sluice {

// A bit for each token of a vocabulary.
struct TokenMask {
  static constexpr size_t kBits = 32;
  std::vector<int32_t> words;

  // Of tokens kBits * i to kBits * i + 31, the first in the lowest bit.
  uint32_t word(size_t i) const { return i < words.size() ? static_cast<uint32_t>(words[i]) : 0; }
  bool has(Token token) const {
    const auto i = static_cast<size_t>(token);
    return (word(i / kBits) >> (i % kBits) & 1) != 0;
  }
  void add(Token token) {
    const auto i = static_cast<size_t>(token);
    words[i / kBits] |= static_cast<int32_t>(uint32_t{1} << (i % kBits));
  }
};

// Thread safety: none.
class Constraint {
 public:
  virtual ~Constraint() = default;

  // The answer goes on with a token. After one that may not come, or the answer's end, all may.
  virtual void accept(Token token) = 0;
  // Takes the last n tokens back. REQUIRES: there are as many.
  virtual void take_back(size_t n) = 0;

  // Which tokens may come next, at least one; null: all. Valid until the next call.
  virtual const TokenMask* permitted() = 0;

  // It can't say any more what may come: all that is permitted is to end the answer, which is none of its form.
  virtual bool failed() const = 0;
};

// The constraint of an answer that begins, by its grammar (SamplingParams::grammar).
using Constrain = std::function<std::unique_ptr<Constraint>(const AnswerGrammar& grammar)>;

}  // namespace sluice

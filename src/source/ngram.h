// Guesses from the text itself: what followed the last tokens whenever they occurred before.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "source/known_text.h"
#include "source/policy.h"
#include "source/source.h"

namespace sluice {

// Counts which tokens followed each context, the last n tokens for n = 0 … longest_context, in prompt and output alike.
//
// Estimate: interpolation as by Witten and Bell, from the longest context that was seen down to the empty one. A
// context with C continuations of d distinct tokens gives a token that followed it c times c / (C + e d) of the mass
// that has come down to it, and passes on e d / (C + e d). Theirs is e = 1, ours policy::kEscape. A context proposes
// only its policy::kWidestContext likeliest continuations (by count, then the most recent). Equal estimates: longer
// context first, then its own order.
//
// A context that was seen once has no contexts below it in memory: the longer ones that hold it were seen once as well,
// at the same place, so the text itself tells them. They are made when it comes a second time.
//
// A corpus is a text that was there before: its contexts count like the text's own, after them at the same length.
//
// Costs: a table look-up for each token of the longest context that occurred twice, then one comparison with the text,
// whatever its length; observe() at most longest_context + 1 look-ups a token, however many continuations a context
// has; in a corpus a binary search a length.
class NgramSource final : public Source {
 public:
  // REQUIRES: longest_context >= 0.
  explicit NgramSource(int32_t longest_context = policy::kLongestContext,
                       std::shared_ptr<const KnownText> corpus = nullptr);
  explicit NgramSource(std::shared_ptr<const KnownText> corpus)
      : NgramSource(policy::kLongestContext, std::move(corpus)) {}

  std::string_view name() const override { return "ngram"; }
  void observe(std::span<const Token> tokens) override;
  void truncate(int32_t length) override;  // counts the text anew: about a microsecond a token
  std::vector<Candidate> expand(std::span<const Token> tree_path, int32_t max_children) override;

 private:
  using Continuation = KnownText::Continuation;
  static constexpr uint32_t kNoContext = ~uint32_t{0};
  struct Context {
    uint32_t shorter = kNoContext;  // the context without its first token, and
    Token first = kNoToken;         // that token; none of the empty one
    uint32_t total = 0;             // C
    uint32_t at = 0;  // total == 1: where in the text its continuation is, which stands nowhere else; more: in after_
  };
  // What has followed a context that came twice: most came once, and many requests' share the processor's caches.
  struct After {
    uint32_t first = 0;  // where in the text the first of them is
    // policy::kWidestContext of the d at most, by count, then the most recent first.
    std::vector<Continuation> likeliest;
    std::unique_ptr<std::unordered_map<Token, uint32_t>> others;  // the counts of the rest, if there is one
    size_t distinct() const { return likeliest.size() + (others ? others->size() : 0); }  // d
    void add(Token token);
    uint32_t take_out(Token token);
  };

  // Contexts form a tree that is walked backwards through the text: from the empty context, number 0, to the one that
  // has one more token before it, as far as contexts came twice. They are found by an open-addressing table of their
  // numbers, which is small, since many requests' tables share the processor's caches.
  uint32_t& slot(uint32_t shorter, Token first);
  uint32_t find(uint32_t shorter, Token first) { return slot(shorter, first); }
  uint32_t add(uint32_t shorter, Token first, uint32_t at);
  void grow();
  void count(uint32_t at);
  void continued(uint32_t context, uint32_t at);

  int32_t longest_context_;
  std::shared_ptr<const KnownText> corpus_;  // may be none
  std::vector<Token> text_;
  std::vector<Context> contexts_;
  std::vector<After> after_;
  std::vector<uint32_t> slots_;  // a power of two of them, at most half full; the others hold kNoContext
};

}  // namespace sluice

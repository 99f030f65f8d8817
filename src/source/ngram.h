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
// at the same place, so the text itself tells them. They are made when it comes a second time. Contexts are known by a
// hash of their tokens: two of one would share their continuations, which makes a worse guess and nothing else.
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
  // The tables are small, and nothing in them is apart on the heap: many requests' share the processor's caches.
  struct Context {
    uint64_t hash = 0;
    uint32_t total = 0;  // C; 0: a free place
    uint32_t at = 0;  // total == 1: where in the text its continuation is, which stands nowhere else; more: in after_
  };
  // What has followed a context that came twice: of the d continuations, policy::kWidestContext at most, by count, then
  // the most recent first. They lie side by side in lists_, where there is room for a power of two of them.
  struct After {
    uint32_t first;     // where in the text the first of them is
    uint32_t distinct;  // d
    uint32_t list, size;
  };

  Context* find(uint64_t hash);  // null: it was never seen
  Context& place(uint64_t hash);
  void add(uint64_t hash, uint32_t at);
  void make_room(size_t more);
  void count(uint32_t at);
  void continued(Context& context, uint32_t at);
  void add_continuation(uint32_t after, Token token);
  uint32_t take_out_of_rest(uint32_t after, Token token);
  void widen(After& after);
  std::span<const Continuation> likeliest(const After& after) const { return {&lists_[after.list], after.size}; }

  int32_t longest_context_;
  std::shared_ptr<const KnownText> corpus_;  // may be none
  std::vector<Token> text_;
  Context empty_;
  std::vector<Context> contexts_;  // the others, an open-addressing table: a power of two of places, at most half full
  size_t n_contexts_ = 0;
  std::vector<After> after_;
  std::vector<Continuation> lists_;
  std::vector<std::vector<uint32_t>> holes_;     // places of lists that have moved, by the logarithm of their room
  std::unordered_map<uint64_t, uint32_t> rest_;  // counts of those not among the likeliest, by key()
};

}  // namespace sluice

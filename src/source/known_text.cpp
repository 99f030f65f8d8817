#include "source/known_text.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/result.h"
#include "source/policy.h"

namespace sluice {

KnownText::KnownText(std::vector<Token> text) : text_(std::move(text)) {
  SLUICE_CHECK(text_.size() < std::numeric_limits<uint32_t>::max(), "places in a text are 32-bit numbers");
  suffixes_.resize(text_.empty() ? 0 : text_.size() - 1);
  std::iota(suffixes_.begin(), suffixes_.end(), 0u);
  const auto end = text_.end();
  std::sort(suffixes_.begin(), suffixes_.end(), [&](uint32_t a, uint32_t b) {
    const auto from_a = text_.begin() + a, from_b = text_.begin() + b;
    const auto length = [&](auto from) { return std::min<ptrdiff_t>(policy::kLongestContext + 1, end - from); };
    const auto [at_a, at_b] = std::mismatch(from_a, from_a + length(from_a), from_b, from_b + length(from_b));
    const bool a_ends = at_a == from_a + length(from_a), b_ends = at_b == from_b + length(from_b);
    if (a_ends || b_ends) return a_ends != b_ends ? a_ends : a < b;
    return *at_a < *at_b;
  });
}

std::vector<KnownText::Continuation> KnownText::after(std::span<const Token> context) const {
  SLUICE_CHECK(!context.empty() && context.size() <= policy::kLongestContext,
               "contexts of a corpus have 1 to policy::kLongestContext tokens");
  const auto of = [&](uint32_t at) {
    return std::span(text_).subspan(at, std::min(context.size(), text_.size() - at));
  };
  const auto less = [](std::span<const Token> a, std::span<const Token> b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  };
  auto first = std::lower_bound(suffixes_.begin(), suffixes_.end(), context,
                                [&](uint32_t at, std::span<const Token> c) { return less(of(at), c); });
  const auto last = std::upper_bound(first, suffixes_.end(), context,
                                     [&](std::span<const Token> c, uint32_t at) { return less(c, of(at)); });
  // The text's own end follows nothing; it is the shortest of those that begin with the context.
  if (first != last && *first + context.size() == text_.size()) ++first;
  const auto n = static_cast<size_t>(last - first);
  const size_t taken = std::min(n, policy::kOccurrences);
  std::vector<Continuation> continuations;
  for (size_t i = 0; i < taken; ++i) {
    const Token token = text_[first[static_cast<ptrdiff_t>(i * n / taken)] + context.size()];
    if (continuations.empty() || continuations.back().token != token) continuations.push_back({token, 0});
    ++continuations.back().count;
  }
  std::stable_sort(continuations.begin(), continuations.end(),
                   [](const Continuation& a, const Continuation& b) { return a.count > b.count; });
  return continuations;
}

}  // namespace sluice

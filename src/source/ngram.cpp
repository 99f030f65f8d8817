#include "source/ngram.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <functional>
#include <memory_resource>
#include <utility>

#include "base/result.h"
#include "source/policy.h"

namespace sluice {

namespace {

// Estimates from contexts, added from the best witness down to the weakest.
class Interpolation {
 public:
  Interpolation() { estimates_.reserve(kUsual); }
  Interpolation(const Interpolation&) = delete;
  Interpolation& operator=(const Interpolation&) = delete;

  // C, d, and the continuations, of which the first policy::kWidestContext count.
  void add(uint32_t total, size_t distinct, std::span<const KnownText::Continuation> continuations) {
    if (continuations.empty()) return;
    const double share = mass_ / (total + policy::kEscape * static_cast<double>(distinct));
    for (const auto& [token, count] : continuations.first(std::min(continuations.size(), policy::kWidestContext))) {
      if (Estimate* known = find(token))
        known->probability += share * count;
      else
        append(token, share * count);
    }
    mass_ = share * policy::kEscape * static_cast<double>(distinct);
  }

  // The likeliest first; among equals the one that came first.
  std::vector<Candidate> best(size_t count) {
    std::pmr::vector<uint64_t> ranks(
        &memory_);  // a probability's bits above, which rise with it, and how early it came below
    ranks.reserve(estimates_.size());
    for (size_t i = 0; i < estimates_.size(); ++i) {
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(estimates_[i].probability));
      ranks.push_back(uint64_t{bits} << 32 | ~static_cast<uint32_t>(i));
    }
    const size_t n_best = std::min(ranks.size(), count);
    const auto end = ranks.begin() + static_cast<ptrdiff_t>(n_best);
    if (n_best < ranks.size()) std::nth_element(ranks.begin(), end, ranks.end(), std::greater<>());
    std::sort(ranks.begin(), end, std::greater<>());
    std::vector<Candidate> candidates;
    candidates.reserve(n_best);
    for (auto rank = ranks.begin(); rank != end; ++rank) {
      const Estimate& estimate = estimates_[~static_cast<uint32_t>(*rank)];
      candidates.push_back({estimate.token, static_cast<float>(estimate.probability)});
    }
    return candidates;
  }

 private:
  struct Estimate {
    Token token;
    uint32_t next;  // of the same bucket: its place plus one, or 0
    double probability;
  };
  static constexpr size_t kBuckets = 128, kUsual = 2 * policy::kWidestContext;

  uint32_t& bucket(Token token) { return buckets_[static_cast<uint32_t>(token) % kBuckets]; }
  Estimate* find(Token token) {
    uint32_t at = bucket(token);
    while (at != 0 && estimates_[at - 1].token != token) at = estimates_[at - 1].next;
    return at == 0 ? nullptr : &estimates_[at - 1];
  }
  void append(Token token, double probability) {
    estimates_.push_back({token, bucket(token), probability});
    bucket(token) = static_cast<uint32_t>(estimates_.size());
  }

  // Such a table is made for every question: the usual one is not asked from the heap.
  std::array<std::byte, kUsual*(sizeof(Estimate) + sizeof(uint64_t))> usual_;
  std::pmr::monotonic_buffer_resource memory_{usual_.data(), usual_.size()};
  std::pmr::vector<Estimate> estimates_{&memory_};
  std::array<uint32_t, kBuckets> buckets_{};
  double mass_ = 1.0;
};

}  // namespace

NgramSource::NgramSource(int32_t longest_context, std::shared_ptr<const KnownText> corpus)
    : longest_context_(longest_context), corpus_(std::move(corpus)), contexts_(1), slots_(256, kNoContext) {
  SLUICE_CHECK(longest_context >= 0, "a context has a length");
}

void NgramSource::observe(std::span<const Token> tokens) {
  for (const Token token : tokens) {
    SLUICE_CHECK(token >= 0, "only tokens are committed");
    text_.push_back(token);
    count(static_cast<uint32_t>(text_.size() - 1));
  }
}

void NgramSource::truncate(int32_t length) {
  SLUICE_CHECK(length >= 0 && static_cast<size_t>(length) <= text_.size(), "a text is cut to a length that it has");
  if (static_cast<size_t>(length) == text_.size()) return;
  std::vector<Token> kept(text_.begin(), text_.begin() + length);
  *this = NgramSource(longest_context_, corpus_);
  observe(kept);
}

std::vector<Candidate> NgramSource::expand(std::span<const Token> tree_path, int32_t max_children) {
  if (max_children <= 0) return {};
  const size_t length = text_.size() + tree_path.size();
  const auto from_end = [&](size_t n) {  // 1: the node itself
    return n <= tree_path.size() ? tree_path[tree_path.size() - n] : text_[length - n];
  };
  // A context that was never continued has no longer one that was.
  const size_t longest = std::min(static_cast<size_t>(longest_context_), length);
  std::vector<uint32_t> matches;
  matches.reserve(longest + 1);
  matches.push_back(0);
  while (matches.size() <= longest && contexts_[matches.back()].total > 1) {
    const uint32_t next = find(matches.back(), from_end(matches.size()));
    if (next == kNoContext) break;
    matches.push_back(next);
  }
  // One that came once matches on as far as the text before its place does.
  size_t matched = matches.size() - 1;
  if (const Context& last = contexts_[matches.back()]; last.total == 1)
    while (matched < longest && matched < last.at && from_end(matched + 1) == text_[last.at - matched - 1]) ++matched;

  std::vector<std::vector<Continuation>> known;  // by length, from 1
  if (corpus_ != nullptr) {
    const size_t most = std::min(policy::kLongestContext, length);
    std::vector<Token> context;
    for (size_t n = most; n > 0; --n) context.push_back(from_end(n));
    for (size_t n = 1; n <= most; ++n) {
      known.push_back(corpus_->after(std::span(context).last(n)));
      if (known.back().empty()) break;  // then no longer one is there
    }
  }

  Interpolation all;
  for (size_t n = std::max(matched, known.size()) + 1; n-- > 0;) {
    if (n <= matched) {
      const Context& context = contexts_[matches[std::min(n, matches.size() - 1)]];
      if (context.total == 1) {
        const Continuation only[] = {{text_[context.at], 1}};
        all.add(1, 1, only);
      } else if (context.total > 1) {
        all.add(context.total, after_[context.at].distinct(), after_[context.at].likeliest);
      }
    }
    if (n > 0 && n <= known.size()) {
      uint32_t total = 0;
      for (const Continuation& c : known[n - 1]) total += c.count;
      all.add(total, known[n - 1].size(), known[n - 1]);
    }
  }
  return all.best(static_cast<size_t>(max_children));
}

// The token at `at` is one more continuation of each of the contexts before it.
void NgramSource::count(uint32_t at) {
  continued(0, at);
  uint32_t context = 0;
  for (uint32_t n = 1; n <= std::min(static_cast<uint32_t>(longest_context_), at); ++n) {
    const Context& shorter = contexts_[context];
    if (shorter.total == 1) return;
    // It has just come the second time: the first time's longer context is needed from now on.
    if (shorter.total == 2)
      if (const uint32_t first = after_[shorter.at].first; first >= n) add(context, text_[first - n], first);
    const uint32_t next = find(context, text_[at - n]);
    if (next == kNoContext) {
      add(context, text_[at - n], at);
      return;
    }
    continued(next, at);
    context = next;
  }
}

// By the token at `at`.
void NgramSource::continued(uint32_t number, uint32_t at) {
  Context& context = contexts_[number];
  if (++context.total == 1) {
    context.at = at;
    return;
  }
  if (context.total == 2) {
    after_.push_back({.first = context.at, .likeliest = {{text_[context.at], 1}}, .others = nullptr});
    context.at = static_cast<uint32_t>(after_.size() - 1);
  }
  after_[context.at].add(text_[at]);
}

// Puts the token at the head of those with its new count, which keeps the order without a clock. Since counts only
// grow, one that has fallen behind the likeliest comes back when it is counted again, or never.
void NgramSource::After::add(Token token) {
  const Continuation counted{token, take_out(token) + 1};
  const auto at = std::partition_point(likeliest.begin(), likeliest.end(),
                                       [&](const Continuation& c) { return c.count > counted.count; });
  likeliest.insert(at, counted);
  if (likeliest.size() <= policy::kWidestContext) return;
  if (!others) others = std::make_unique<std::unordered_map<Token, uint32_t>>();
  others->emplace(likeliest.back().token, likeliest.back().count);
  likeliest.pop_back();
}

// Its count so far.
uint32_t NgramSource::After::take_out(Token token) {
  const auto entry =
      std::find_if(likeliest.begin(), likeliest.end(), [token](const Continuation& c) { return c.token == token; });
  uint32_t count = 0;
  if (entry != likeliest.end()) {
    count = entry->count;
    likeliest.erase(entry);
  } else if (others) {
    const auto other = others->find(token);
    if (other == others->end()) return 0;
    count = other->second;
    others->erase(other);
  }
  return count;
}

// Where the context's number is, or the free place where it belongs.
uint32_t& NgramSource::slot(uint32_t shorter, Token first) {
  uint64_t hash = (uint64_t{shorter} << 32 | static_cast<uint32_t>(first)) * 0x9E3779B97F4A7C15ull;
  hash ^= hash >> 32;
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  const auto is_other = [&](const Context& there) { return there.shorter != shorter || there.first != first; };
  while (slots_[at] != kNoContext && is_other(contexts_[slots_[at]])) at = (at + 1) & mask;
  return slots_[at];
}

// A context that came once, with its continuation at `at`.
uint32_t NgramSource::add(uint32_t shorter, Token first, uint32_t at) {
  if (2 * contexts_.size() >= slots_.size()) grow();
  const auto added = static_cast<uint32_t>(contexts_.size());
  slot(shorter, first) = added;
  contexts_.push_back({.shorter = shorter, .first = first, .total = 1, .at = at});
  return added;
}

void NgramSource::grow() {
  slots_.assign(2 * slots_.size(), kNoContext);
  for (uint32_t i = 1; i < contexts_.size(); ++i) slot(contexts_[i].shorter, contexts_[i].first) = i;
}

}  // namespace sluice

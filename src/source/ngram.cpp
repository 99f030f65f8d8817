#include "source/ngram.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <memory_resource>
#include <utility>

#include "base/random.h"
#include "base/result.h"
#include "source/policy.h"

namespace sluice {

namespace {

// Of a list of continuations.
uint32_t room_for(uint32_t size) { return size == 0 ? 0 : std::max<uint32_t>(2, std::bit_ceil(size)); }

uint64_t key(uint32_t after, Token token) { return uint64_t{after} << 32 | static_cast<uint32_t>(token); }

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
    // A probability's bits above, which rise with it, and how early it came below: nearly in order as they come, since
    // longer contexts and what came oftenest come first.
    std::pmr::vector<uint64_t> ranks(&memory_);
    ranks.reserve(std::min(estimates_.size(), count));
    for (size_t i = 0; i < estimates_.size(); ++i) {
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(estimates_[i].probability));
      const uint64_t rank = uint64_t{bits} << 32 | ~static_cast<uint32_t>(i);
      if (ranks.size() == count) {
        if (ranks.back() > rank) continue;
        ranks.pop_back();
      }
      auto at = ranks.size();
      ranks.push_back(rank);
      for (; at > 0 && ranks[at - 1] < rank; --at) ranks[at] = ranks[at - 1];
      ranks[at] = rank;
    }
    std::vector<Candidate> candidates;
    candidates.reserve(ranks.size());
    for (const uint64_t rank : ranks) {
      const Estimate& estimate = estimates_[~static_cast<uint32_t>(rank)];
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
    : longest_context_(longest_context), corpus_(std::move(corpus)), contexts_(256) {
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
  std::vector<const Context*> matches;  // by length
  matches.reserve(longest + 1);
  matches.push_back(&empty_);
  for (uint64_t hash = 0; matches.size() <= longest && matches.back()->total > 1;) {
    hash = prolong(hash, from_end(matches.size()));
    const Context* const next = find(hash);
    if (next == nullptr) break;
    matches.push_back(next);
  }
  // One that came once matches on as far as the text before its place does.
  size_t matched = matches.size() - 1;
  if (const Context& last = *matches.back(); last.total == 1)
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
      const Context& context = *matches[std::min(n, matches.size() - 1)];
      if (context.total == 1) {
        const Continuation only[] = {{text_[context.at], 1}};
        all.add(1, 1, only);
      } else if (context.total > 1) {
        const After& after = after_[context.at];
        all.add(context.total, after.distinct, likeliest(after));
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
  const uint32_t longest = std::min(static_cast<uint32_t>(longest_context_), at);
  make_room(longest + 1);
  continued(empty_, at);
  uint64_t hash = 0;
  const Context* shorter = &empty_;
  for (uint32_t n = 1; n <= longest && shorter->total > 1; ++n) {
    // It has just come the second time: the first time's longer context is needed from now on.
    if (shorter->total == 2)
      if (const uint32_t first = after_[shorter->at].first; first >= n) add(prolong(hash, text_[first - n]), first);
    hash = prolong(hash, text_[at - n]);
    Context* const context = find(hash);
    if (context == nullptr) return add(hash, at);
    continued(*context, at);
    shorter = context;
  }
}

// By the token at `at`.
void NgramSource::continued(Context& context, uint32_t at) {
  if (++context.total == 1) {
    context.at = at;
    return;
  }
  if (context.total == 2) {
    const uint32_t first = std::exchange(context.at, static_cast<uint32_t>(after_.size()));
    after_.push_back({.first = first, .distinct = 0, .list = 0, .size = 0});
    add_continuation(context.at, text_[first]);
  }
  add_continuation(context.at, text_[at]);
}

// Puts the token at the head of those with its new count, which keeps the order without a clock. Since counts only
// grow, one that has fallen behind the likeliest comes back when it is counted again, or never.
void NgramSource::add_continuation(uint32_t number, Token token) {
  After& after = after_[number];
  const auto is_it = [token](const Continuation& c) { return c.token == token; };
  Continuation* list = lists_.data() + after.list;
  Continuation* entry = std::find_if(list, list + after.size, is_it);
  Continuation counted{token, 1};
  if (entry != list + after.size) {
    counted.count += entry->count;
  } else {
    const uint32_t before = after.distinct > after.size ? take_out_of_rest(number, token) : 0;
    counted.count += before;
    after.distinct += before == 0;
    if (after.size == policy::kWidestContext) {
      const Continuation last = list[after.size - 1];
      const bool comes_in = last.count <= counted.count;
      const Continuation& out = comes_in ? last : counted;
      rest_.emplace(key(number, out.token), out.count);
      if (!comes_in) return;
      --entry;
    } else {
      if (after.size == room_for(after.size)) widen(after);
      list = lists_.data() + after.list;
      entry = list + after.size++;
    }
  }
  for (; entry != list && entry[-1].count <= counted.count; --entry) *entry = entry[-1];
  *entry = counted;
}

// How often it came, 0 if never.
uint32_t NgramSource::take_out_of_rest(uint32_t after, Token token) {
  const auto taken = rest_.extract(key(after, token));
  return taken.empty() ? 0 : taken.mapped();
}

// Its list, which is full, moves to where there is room for one more.
void NgramSource::widen(After& after) {
  const auto holes_of = [this](uint32_t room) -> std::vector<uint32_t>& {
    const auto order = static_cast<size_t>(std::countr_zero(room));
    if (holes_.size() <= order) holes_.resize(order + 1);
    return holes_[order];
  };
  const uint32_t room = room_for(after.size + 1);
  auto list = static_cast<uint32_t>(lists_.size());
  if (std::vector<uint32_t>& holes = holes_of(room); holes.empty()) {
    lists_.resize(lists_.size() + room);
  } else {
    list = holes.back();
    holes.pop_back();
  }
  std::copy_n(lists_.begin() + after.list, after.size, lists_.begin() + list);
  if (after.size > 0) holes_of(after.size).push_back(after.list);
  after.list = list;
}

// Where the context is, or the free place where it belongs.
NgramSource::Context& NgramSource::place(uint64_t hash) {
  const size_t mask = contexts_.size() - 1;
  size_t at = hash & mask;
  while (contexts_[at].total != 0 && contexts_[at].hash != hash) at = (at + 1) & mask;
  return contexts_[at];
}

NgramSource::Context* NgramSource::find(uint64_t hash) {
  Context& context = place(hash);
  return context.total == 0 ? nullptr : &context;
}

// A context that came once, with its continuation at `at`. REQUIRES: there is room, and it is not there.
void NgramSource::add(uint64_t hash, uint32_t at) {
  place(hash) = {.hash = hash, .total = 1, .at = at};
  ++n_contexts_;
}

// For so many more contexts.
void NgramSource::make_room(size_t more) {
  const size_t places = std::bit_ceil(2 * (n_contexts_ + more));
  if (places <= contexts_.size()) return;
  const std::vector<Context> before = std::exchange(contexts_, std::vector<Context>(places));
  for (const Context& context : before)
    if (context.total != 0) place(context.hash) = context;
}

}  // namespace sluice

#include "source/ngram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "source/policy.h"

namespace sluice {
namespace {

using Tokens = std::vector<Token>;

// The interpolation by scanning the whole text for every context.
std::vector<Candidate> reference(const Tokens& text, const Tokens& tree_path, size_t longest, size_t max_children) {
  Tokens all = text;
  all.insert(all.end(), tree_path.begin(), tree_path.end());
  std::vector<std::pair<Token, double>> estimates;
  double mass = 1.0;
  for (size_t n = std::min(longest, all.size()) + 1; n-- > 0;) {
    std::map<Token, std::pair<int, size_t>> followers;  // count, last place
    int total = 0;
    for (size_t i = n; i < text.size(); ++i)
      if (std::equal(all.end() - n, all.end(), text.begin() + (i - n))) {
        ++followers[text[i]].first;
        followers[text[i]].second = i;
        ++total;
      }
    if (total == 0) continue;
    std::vector<std::pair<Token, std::pair<int, size_t>>> ranked(followers.begin(), followers.end());
    std::sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    const double escape = 2.0 * static_cast<double>(ranked.size());
    if (ranked.size() > policy::kWidestContext) ranked.resize(policy::kWidestContext);
    for (const auto& [token, seen] : ranked) {
      const double share = mass * seen.first / (total + escape);
      const auto found =
          std::find_if(estimates.begin(), estimates.end(), [t = token](auto& e) { return e.first == t; });
      if (found == estimates.end())
        estimates.push_back({token, share});
      else
        found->second += share;
    }
    mass *= escape / (total + escape);
  }
  // The product's sums and these may differ in the last bits: rank with that much tolerance.
  std::stable_sort(estimates.begin(), estimates.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second * (1 + 1e-12); });
  std::vector<Candidate> result;
  for (const auto& [token, p] : estimates)
    if (result.size() < max_children) result.push_back({token, static_cast<float>(p)});
  return result;
}

void expect_equal(const std::vector<Candidate>& actual, const std::vector<Candidate>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_FLOAT_EQ(actual[i].probability, expected[i].probability);
    // Sums of equal estimates that took different orders may swap; everything else is in order.
    const auto same =
        std::find_if(expected.begin(), expected.end(), [&](const Candidate& c) { return c.token == actual[i].token; });
    ASSERT_NE(same, expected.end()) << "rank " << i;
    EXPECT_FLOAT_EQ(actual[i].probability, same->probability) << "rank " << i;
  }
}

Tokens tokens_of(const std::vector<Candidate>& candidates) {
  Tokens tokens;
  for (const auto& c : candidates) tokens.push_back(c.token);
  return tokens;
}

// A text that repeats itself, with noise.
Tokens repetitive_text(size_t length, Token vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  Tokens text;
  while (text.size() < length) {
    if (text.size() > 20 && random() % 3 == 0) {
      const size_t from = random() % (text.size() - 10);
      for (size_t i = 0; i < 10 && text.size() < length; ++i) text.push_back(text[from + i]);
    } else {
      text.push_back(static_cast<Token>(random() % vocabulary));
    }
  }
  return text;
}

TEST(NgramSource, SaysNothingBeforeAnyText) {
  NgramSource source;
  EXPECT_TRUE(source.expand({}, 16).empty());
  EXPECT_TRUE(source.expand(Tokens{1, 2, 3}, 16).empty());
  source.observe({});
  EXPECT_TRUE(source.expand({}, 16).empty());
  EXPECT_EQ(source.name(), "ngram");
}

TEST(NgramSource, EstimatesAsTheBruteForceReference) {
  std::mt19937 random(4);
  for (const int32_t longest : {0, 1, 3, 8})
    for (const Token vocabulary : {3, 20, 500}) {
      const Tokens text = repetitive_text(300, vocabulary, static_cast<uint32_t>(longest + vocabulary));
      NgramSource source(longest);
      for (size_t i = 0; i < text.size(); ++i) {
        source.observe(std::span(text).subspan(i, 1));
        if (i % 7 != 0) continue;
        const Tokens seen(text.begin(), text.begin() + i + 1);
        Tokens tree_path(random() % 5);
        for (Token& token : tree_path) token = text[random() % text.size()];
        for (const int32_t max_children : {1, 4, 16, 64}) {
          SCOPED_TRACE(testing::Message() << longest << " " << vocabulary << " " << i << " " << max_children);
          expect_equal(source.expand(tree_path, max_children),
                       reference(seen, tree_path, static_cast<size_t>(longest), static_cast<size_t>(max_children)));
        }
      }
    }
}

TEST(NgramSource, RanksTheLongestMatchFirst) {
  NgramSource source;
  source.observe(Tokens{1, 2, 3, 10, 5, 3, 20, 6, 3, 20, 7, 1, 2, 3});
  // After "3" alone 20 is likelier, after "1 2 3" it is 10.
  const auto candidates = source.expand({}, 2);
  EXPECT_EQ(tokens_of(candidates), (Tokens{10, 20}));
  EXPECT_GT(candidates[0].probability, candidates[1].probability);
}

TEST(NgramSource, RanksByCountThenByRecency) {
  NgramSource source(0);
  source.observe(Tokens{1, 2, 5, 2, 3, 4, 5});
  EXPECT_EQ(tokens_of(source.expand({}, 16)), (Tokens{5, 2, 4, 3, 1}));
}

TEST(NgramSource, EstimatesDoNotDependOnHowManyAreAsked) {
  NgramSource source;
  source.observe(repetitive_text(500, 50, 6));
  const auto many = source.expand({}, 16);
  for (int32_t n = 1; n < 16; ++n) {
    const auto few = source.expand({}, n);
    ASSERT_EQ(few.size(), static_cast<size_t>(n));
    for (int32_t i = 0; i < n; ++i) EXPECT_EQ(few[i].token, many[i].token);
    for (int32_t i = 0; i < n; ++i) EXPECT_EQ(few[i].probability, many[i].probability);
  }
}

TEST(NgramSource, FollowsTheTreePathPastTheCommittedText) {
  NgramSource source;
  source.observe(Tokens{1, 2, 3, 4, 5, 6, 1});
  EXPECT_EQ(source.expand({}, 1)[0].token, 2);
  EXPECT_EQ(source.expand(Tokens{2}, 1)[0].token, 3);
  EXPECT_EQ(source.expand(Tokens{2, 3, 4, 5}, 1)[0].token, 6);
  EXPECT_EQ(source.expand({}, 1)[0].token, 2) << "asking changes nothing";
}

TEST(NgramSource, ProposesDistinctTokensInOrderWithinTheLimitAndTheMassOfOne) {
  NgramSource source;
  source.observe(repetitive_text(2000, 200, 8));
  for (const int32_t max_children : {0, 1, 5, 100}) {
    const auto candidates = source.expand({}, max_children);
    EXPECT_LE(candidates.size(), static_cast<size_t>(max_children));
    float sum = 0.0f, before = 1.0f;
    std::set<Token> distinct;
    for (const auto& [token, probability] : candidates) {
      EXPECT_GT(probability, 0.0f);
      EXPECT_LE(probability, before);
      before = probability;
      sum += probability;
      distinct.insert(token);
    }
    EXPECT_EQ(distinct.size(), candidates.size());
    EXPECT_LE(sum, 1.0f);
  }
}

TEST(NgramSource, GrowsSureOfWhatRepeats) {
  NgramSource source;
  float before = 0.0f;
  for (int i = 0; i < 5; ++i) {
    source.observe(Tokens{1, 2, 3, 4});
    const auto first = source.expand({}, 1)[0];
    if (i == 0) continue;  // nothing has repeated yet
    EXPECT_EQ(first.token, 1);
    EXPECT_GT(first.probability, before);
    before = first.probability;
  }
  EXPECT_GT(before, 0.9f);
}

TEST(NgramSource, ContextsMayBeLong) {
  NgramSource source(5000);
  std::vector<Token> text;
  for (int repeat = 0; repeat < 3; ++repeat)
    for (Token token = 0; token < 700; ++token) text.push_back(token);
  source.observe(text);
  const auto candidates = source.expand({}, 2);
  ASSERT_FALSE(candidates.empty());
  EXPECT_EQ(candidates.front().token, 0);
}

TEST(NgramSource, TruncateForgetsTheRest) {
  const Tokens text = repetitive_text(400, 30, 5);
  for (const int32_t length : {0, 1, 150, 399, 400}) {
    NgramSource cut, fresh;
    cut.observe(text);
    cut.truncate(length);
    fresh.observe(std::span(text).first(static_cast<size_t>(length)));
    for (int round = 0; round < 2; ++round) {
      const auto a = cut.expand(Tokens{text[7]}, 16), b = fresh.expand(Tokens{text[7]}, 16);
      ASSERT_EQ(tokens_of(a), tokens_of(b));
      for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].probability, b[i].probability);
      cut.observe(Tokens{1, 2, 3, 1, 2});  // and goes on from there
      fresh.observe(Tokens{1, 2, 3, 1, 2});
    }
  }
}

double seconds_to_observe(const Tokens& text) {
  double best = 1e9;
  for (int attempt = 0; attempt < 3; ++attempt) {
    NgramSource source;
    const auto begin = std::chrono::steady_clock::now();
    source.observe(text);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

TEST(NgramSource, ATextOfDistinctTokensTakesNoLongerThanOneThatRepeatsItself) {
  Tokens distinct(65'536);
  std::iota(distinct.begin(), distinct.end(), 0);
  std::shuffle(distinct.begin(), distinct.end(), std::mt19937(3));
  const double ordinary = seconds_to_observe(repetitive_text(distinct.size(), 1000, 3));
  // Looking at all tokens before it for each would take dozens of times as long.
  EXPECT_LT(seconds_to_observe(distinct), 5 * ordinary) << ordinary << " s";
}

TEST(NgramSource, EstimatesAsTheReferenceWhateverTheNumberOfContinuations) {
  std::mt19937 random(9);
  Tokens text;
  for (int i = 0; i < 1500; ++i)  // the empty context gets hundreds of continuations, some more often than others
    text.push_back(static_cast<Token>(std::min(random() % 600, random() % 600)));
  NgramSource source(2);
  for (size_t i = 0; i < text.size(); ++i) {
    source.observe(std::span(text).subspan(i, 1));
    if (i % 97 != 0 && i + 1 < text.size()) continue;
    const Tokens seen(text.begin(), text.begin() + static_cast<ptrdiff_t>(i) + 1);
    expect_equal(source.expand({}, 64), reference(seen, {}, 2, 64));
  }
}

}  // namespace
}  // namespace sluice

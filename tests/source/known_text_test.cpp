#include "source/known_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "source/ngram.h"
#include "source/policy.h"

namespace sluice {
namespace {

using Tokens = std::vector<Token>;
using Counts = std::map<Token, uint32_t>;

Counts counts(const KnownText& known, const Tokens& context) {
  Counts counts;
  uint32_t before = ~0u;
  for (const auto& [token, count] : known.after(context)) {
    EXPECT_TRUE(counts.emplace(token, count).second) << "named twice";
    EXPECT_LE(count, before) << "the most frequent first";
    before = count;
  }
  return counts;
}

TEST(KnownText, CountsWhatFollowsAContext) {
  const KnownText known({1, 2, 3, 1, 2, 4, 1, 2, 3, 1, 2});
  EXPECT_EQ(counts(known, {1, 2}), (Counts{{3, 2}, {4, 1}})) << "nothing follows the last";
  EXPECT_EQ(counts(known, {2}), (Counts{{3, 2}, {4, 1}}));
  EXPECT_EQ(counts(known, {3, 1, 2}), (Counts{{4, 1}}));
  EXPECT_EQ(counts(known, {4, 1, 2, 3, 1, 2}), Counts());
  EXPECT_EQ(counts(known, {5}), Counts());
  EXPECT_EQ(counts(known, {2, 1}), Counts());
}

TEST(KnownText, IsRightAboutRandomTextsOfAnyLength) {
  std::mt19937 random(3);
  for (size_t length = 0; length < 120; ++length) {
    Tokens text(length);
    for (Token& token : text) token = static_cast<Token>(random() % 3);
    const KnownText known(text);
    for (size_t n = 1; n <= policy::kLongestContext; ++n) {
      Tokens context(n);
      for (Token& token : context) token = static_cast<Token>(random() % 3);
      if (n < length) std::copy_n(text.begin() + static_cast<ptrdiff_t>(random() % (length - n)), n, context.begin());
      Counts expected;
      for (size_t at = 0; at + n < length; ++at)
        if (std::equal(context.begin(), context.end(), text.begin() + static_cast<ptrdiff_t>(at)))
          ++expected[text[at + n]];
      EXPECT_EQ(counts(known, context), expected) << length << " " << n;
    }
  }
}

TEST(KnownText, OfAFrequentContextSomePlacesStandForAll) {
  Tokens text;
  for (int i = 0; i < 3000; ++i) text.insert(text.end(), {7, i % 4 == 0 ? 1 : 2});
  const auto after = counts(KnownText(text), {7});
  EXPECT_EQ(after.at(1) + after.at(2), policy::kOccurrences);
  EXPECT_NEAR(after.at(1), policy::kOccurrences / 4, 2);
}

TEST(NgramSourceWithAKnownText, KnowsItsTextFromTheBeginning) {
  const auto corpus = std::make_shared<const KnownText>(Tokens{5, 6, 7, 8, 9});
  NgramSource ngram(corpus);
  const Tokens prompt = {3, 5, 6};
  ngram.observe(prompt);
  const auto next = ngram.expand({}, 4);
  ASSERT_FALSE(next.empty());
  EXPECT_EQ(next[0].token, 7);
  const Tokens path = {7, 8};
  EXPECT_EQ(ngram.expand(path, 4).at(0).token, 9) << "below nodes of the tree as well";
  ngram.truncate(1);
  EXPECT_NE(ngram.expand({}, 1).at(0).token, 7);
  ngram.observe(Tokens{5, 6});
  EXPECT_EQ(ngram.expand({}, 1).at(0).token, 7) << "a cut text keeps its corpus";
}

TEST(NgramSourceWithAKnownText, BelievesItsOwnTextFirst) {
  NgramSource ngram(std::make_shared<const KnownText>(Tokens{5, 6, 7, 5, 6, 7}));
  ngram.observe(Tokens{5, 6, 8, 5, 6, 8, 5, 6});
  const auto next = ngram.expand({}, 4);
  ASSERT_GE(next.size(), 2u);
  EXPECT_EQ(next[0].token, 8);
  EXPECT_EQ(next[1].token, 7);
  double sum = 0.0;
  for (const Candidate& c : next) sum += c.probability;
  EXPECT_LE(sum, 1.0 + 1e-6);
}

TEST(NgramSourceWithAKnownText, AnEmptyOneChangesNothing) {
  NgramSource with(std::make_shared<const KnownText>(Tokens{})), without;
  std::mt19937 random(4);
  for (int i = 0; i < 300; ++i) {
    const Tokens token = {static_cast<Token>(random() % 4)};
    with.observe(token);
    without.observe(token);
    const auto a = with.expand({}, 8), b = without.expand({}, 8);
    ASSERT_EQ(a.size(), b.size());
    for (size_t k = 0; k < a.size(); ++k) {
      EXPECT_EQ(a[k].token, b[k].token);
      EXPECT_EQ(a[k].probability, b[k].probability);
    }
  }
}

}  // namespace
}  // namespace sluice

#include "engine/guide.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace sluice::test {
namespace {

// A text of which each token is the one before it plus one of these.
class Steps final : public Constraint {
 public:
  explicit Steps(std::vector<Token> steps) : steps_(std::move(steps)) {}
  void accept(Token token) override { said_.push_back(token); }
  void take_back(size_t n) override { said_.resize(said_.size() - n); }
  const TokenMask* permitted() override {
    mask_.words.assign(4, 0);
    for (const Token step : steps_) mask_.add((said_.empty() ? 0 : said_.back()) + step);
    return &mask_;
  }
  bool failed() const override { return said_.size() > kLongest; }

 private:
  static constexpr size_t kLongest = 7;
  std::vector<Token> steps_, said_;
  TokenMask mask_;
};

Guide guide(std::vector<Token> steps) { return Guide(std::make_unique<Steps>(std::move(steps))); }

const std::vector<Token> kAnswer = {1, 2};

TEST(Guide, KeepsWhatMayComeAndMakesUpForTheRest) {
  auto by_steps = guide({1, 2, 3, 4, 5, 6, 7, 8, 9});
  const auto left = by_steps.permitted(kAnswer, std::vector<Token>{5}, {{6, 0.4f}, {5, 0.2f}, {9, 0.1f}});
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].token, 6);
  EXPECT_EQ(left[1].token, 9);
  EXPECT_FLOAT_EQ(left[0].probability, 0.56f);
  EXPECT_FLOAT_EQ(left[1].probability, 0.14f);
}

TEST(Guide, NothingIsMoreThanCertain) {
  auto by_steps = guide({1, 2, 3, 4, 5, 6, 7, 8, 9});
  for (int i = 1; i < 1000; ++i) {
    const float part = static_cast<float>(i) / 1000.0f;
    const auto left = by_steps.permitted(kAnswer, {}, {{3, part}, {90, 1.0f - part}});
    ASSERT_EQ(left.size(), 1u);
    EXPECT_LE(left[0].probability, 1.0f);
    EXPECT_GT(left[0].probability, 0.999f);
  }
}

TEST(Guide, GoesFromAnyPlaceToAnyOther) {
  auto by_steps = guide({1, 2});
  const auto may = [&](const std::vector<Token>& answer, const std::vector<Token>& guesses, Token token) {
    const auto left = by_steps.permitted(answer, guesses, {{token, 0.5f}, {120, 0.2f}});
    return left.size() == 1 && left[0].token == token;
  };
  EXPECT_TRUE(may({}, {}, 2));
  EXPECT_TRUE(may({2, 3}, {5, 6}, 8));
  EXPECT_TRUE(may({2, 3}, {4}, 5));
  EXPECT_TRUE(may({2, 3, 4}, {}, 6));
  EXPECT_TRUE(may({2}, {}, 3));
  EXPECT_TRUE(may({2, 3, 5, 7}, {8, 9, 11}, 12));
  EXPECT_TRUE(may({}, {1}, 3));
}

TEST(Guide, WhereItsFormFailsGuessesAreLeftAsTheyAre) {
  auto by_steps = guide({1});
  const std::vector<Candidate> said = {{90, 0.5f}, {91, 0.2f}};
  const auto left = by_steps.permitted(std::vector<Token>(8, 1), {}, said);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].token, 90);
  EXPECT_FLOAT_EQ(left[1].probability, 0.2f);
}

TEST(Guide, OneTokenThatMayComeIsCertain) {
  const auto left = guide({3}).permitted(kAnswer, {}, {{9, 0.9f}, {5, 0.05f}});
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].token, 5);
  EXPECT_FLOAT_EQ(left[0].probability, 1.0f);
}

TEST(Guide, WhereNothingIsLeftFewThatMayComeAreGuessed) {
  const auto left = guide({3, 40}).permitted(kAnswer, {}, {{9, 0.9f}});
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].token, 5);
  EXPECT_EQ(left[1].token, 42);
  EXPECT_FLOAT_EQ(left[1].probability, 0.5f);
  EXPECT_TRUE(guide({1, 2, 3, 4, 5, 6, 7, 8, 9}).permitted(kAnswer, {}, {{90, 0.9f}}).empty()) << "these are many";
}

}  // namespace
}  // namespace sluice::test

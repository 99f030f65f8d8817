#include "transport/replacements.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

const HostAddress a{"a", 1}, b{"b", 1}, c{"c", 1}, d{"d", 1}, e{"e", 1};
using Hosts = std::vector<HostAddress>;

void all_answer(Replacements& seats) {
  for (const HostAddress& host : seats.unheard()) seats.answered(host);
}

TEST(Replacements, ASpareIsAskedFirst) {
  Replacements seats({a, b, c}, {d, e});
  seats.lose({1}, 0.0);
  all_answer(seats);
  EXPECT_EQ(seats.next(0.0), (Hosts{a, d, c}));
  seats.refused(1, 0.0);
  EXPECT_EQ(seats.next(0.0), (Hosts{a, e, c}));
  seats.settled();
  EXPECT_EQ(seats.seats(), (Hosts{a, e, c}));
}

TEST(Replacements, ThenTheHostItselfAndNeighboursAfterAWhile) {
  Replacements seats({a, b, c}, {});
  seats.lose({1}, 10.0);
  all_answer(seats);
  EXPECT_EQ(seats.next(10.0), (Hosts{a, b, c}));
  seats.refused(1, 10.0);
  all_answer(seats);
  EXPECT_EQ(seats.next(10.1), std::nullopt);
  EXPECT_EQ(seats.next(10.2), (Hosts{a, b, c})) << "it may have been started again";
  seats.refused(1, 11.0);
  EXPECT_EQ(seats.next(11.0), (Hosts{a, a, c}));
  seats.refused(1, 11.0);
  EXPECT_EQ(seats.next(11.0), (Hosts{a, c, c}));
  seats.refused(1, 11.0);
  all_answer(seats);
  EXPECT_EQ(seats.next(11.1), std::nullopt);
  EXPECT_EQ(seats.next(20.0), (Hosts{a, b, c})) << "neighbours without room are not asked again, the host is";
}

TEST(Replacements, ANeighbourThatWasTooBusyToAnswerIsAskedAgain) {
  Replacements seats({a, b}, {});
  seats.lose({0}, 0.0);
  ASSERT_EQ(seats.next(1.0), (Hosts{b, b}));
  seats.silent(0, 2.0);
  EXPECT_EQ(seats.next(2.1), std::nullopt);
  EXPECT_EQ(seats.next(3.0), (Hosts{b, b}));
  seats.silent(1, 4.0);
  EXPECT_EQ(seats.next(4.0), std::nullopt) << "it may be lost, too";
  EXPECT_EQ(seats.unheard(), (Hosts{a, b}));
  seats.answered(b);
  EXPECT_EQ(seats.next(4.0), (Hosts{b, b}));
}

TEST(Replacements, AllStagesOfAHostAreLostWithIt) {
  Replacements seats({a, b, a}, {d});
  seats.lose({0}, 0.0);
  all_answer(seats);
  EXPECT_EQ(seats.next(0.0), (Hosts{d, b, a})) << "the spare for one, the host itself for the other";
  EXPECT_TRUE(seats.is_new(0));
  EXPECT_FALSE(seats.is_new(1));
  EXPECT_TRUE(seats.is_new(2));
}

TEST(Replacements, AHostThatDoesNotAnswerEitherIsReplacedToo) {
  Replacements seats({a, b, c}, {d, e});
  seats.lose({1}, 0.0);
  all_answer(seats);
  EXPECT_EQ(seats.next(0.0), (Hosts{a, d, c}));
  seats.refused(2, 0.0);
  EXPECT_EQ(seats.next(0.0), (Hosts{a, d, e}));
}

TEST(Replacements, NobodyWaitsForASilentSpareOrHost) {
  Replacements seats({a, b, c}, {d, e});
  seats.lose({1}, 0.0);
  EXPECT_EQ(seats.unheard(), (Hosts{d, e, b}));
  EXPECT_EQ(seats.next(0.0), std::nullopt);
  seats.answered(b);
  EXPECT_EQ(seats.next(0.1), std::nullopt) << "a spare may answer yet";
  seats.answered(e);
  EXPECT_EQ(seats.next(0.1), std::nullopt) << "the first is preferred";
  EXPECT_EQ(seats.next(0.3), (Hosts{a, e, c}));
  seats.answered(d);
  EXPECT_EQ(seats.next(0.1), (Hosts{a, d, c}));
  Replacements others({a, b, c}, {d});
  others.lose({1}, 0.0);
  EXPECT_EQ(others.next(0.9), std::nullopt);
  EXPECT_EQ(others.next(1.0), (Hosts{a, a, c}));
  others.answered(b);
  EXPECT_EQ(others.next(1.0), (Hosts{a, b, c}));
}

TEST(Replacements, WhoHadAStageAtFirstMayHaveItAgain) {
  Replacements seats({a, b}, {d});
  seats.lose({1}, 0.0);
  all_answer(seats);
  ASSERT_EQ(seats.next(0.0), (Hosts{a, d}));
  seats.settled();
  seats.lose({1}, 5.0);
  all_answer(seats);
  ASSERT_EQ(seats.next(5.0), (Hosts{a, d}));
  seats.refused(1, 5.0);
  EXPECT_EQ(seats.next(5.0), (Hosts{a, b}));
}

}  // namespace
}  // namespace sluice

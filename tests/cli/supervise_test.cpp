// tools/supervise: a command that fails is started again, and its answer printed once.
#include <gtest/gtest.h>

#include "cli/program.h"

namespace sluice::test {
namespace {

// A shell's command, which knows by the file `n` how often it was started.
Ran supervise(const std::string& name, const std::string& command) {
  const std::string n = write_file(name, "");
  return run_program({"--times", "3", "sh", "-c", "n=" + n + "; echo >>$n; starts=$(wc -l <$n); " + command},
                     {.program = std::string(SLUICE_SOURCE) + "/tools/supervise"});
}

TEST(Supervise, WhatWasSaidBeforeIsNotSaidTwice) {
  const Ran ran = supervise("again", "printf 'one two '; [ $starts = 3 ] || exit 1; echo three");
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "one two three\n");
}

TEST(Supervise, AnErrorsEndOfLineIsNoPartOfTheAnswer) {
  const Ran ran = supervise("line", "printf 'a\\nb'; [ $starts = 2 ] || { echo; exit 1; }; echo c");
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, "a\nbc\n");
}

TEST(Supervise, WhatFailsAgainAndAgainKeepsItsStatus) {
  const Ran ran = supervise("fails", "printf \"x\"; exit 3");
  EXPECT_EQ(ran.status, 3);
  EXPECT_EQ(ran.out, "x");
}

TEST(Supervise, WrongInputIsNotTriedAgain) {
  const Ran ran = supervise("input", "echo $starts; exit 2");
  EXPECT_EQ(ran.status, 2);
  EXPECT_EQ(ran.out, "1\n");
}

TEST(Supervise, AnotherAnswerIsAnError) {
  const Ran ran = supervise("other", "printf \"start $starts\"; exit 1");
  EXPECT_EQ(ran.status, 1);
  EXPECT_EQ(ran.out, "start 1");
  EXPECT_NE(ran.err.find("something else"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace sluice::test

// Command lines that make no sense are refused with one line that names what is wrong and what would be right.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cli/program.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

using Words = std::vector<std::string>;

TEST(CommandLine, HelpOfEveryCommandShowsExamples) {
  for (const char* command : {"run", "chat", "bench", "plan", "inspect"}) {
    const Ran ran = run_program({command, "--help"});
    EXPECT_EQ(ran.status, 0) << command;
    EXPECT_NE(ran.out.find("Examples"), std::string::npos) << command;
    EXPECT_NE(ran.out.find(std::string("sluice ") + command), std::string::npos) << command;
    EXPECT_EQ(ran.err, "") << command;
  }
}

TEST(CommandLine, WithoutACommandIsAnsweredByTheHelp) {
  const Ran bare = run_program({}), help = run_program({"--help"});
  EXPECT_EQ(bare.status, 0);
  EXPECT_EQ(bare.out, help.out);
  EXPECT_NE(bare.out.find("Examples"), std::string::npos);
}

TEST(CommandLine, VersionIsOneLine) {
  const Ran ran = run_program({"--version"});
  EXPECT_EQ(ran.status, 0);
  EXPECT_TRUE(ran.out.starts_with("sluice "));
}

TEST(CommandLine, HelpThatCannotBeWrittenIsAFailure) {
  EXPECT_TRUE(fails(run_program({"--help"}, {.out = "/dev/full"}), 1, {"stdout"}));
}

TEST(CommandLine, NamesWhatItDoesNotKnow) {
  EXPECT_TRUE(fails(run_program({"rnu"}), 2, {"'rnu'", "run, chat", "sluice --help"}));
  EXPECT_TRUE(fails(run_program({"--stages=2", "run"}), 2, {"--stages=2 before the command"}));
  EXPECT_TRUE(fails(run_program({"run", "--stage", "2"}), 2, {"--stage", "sluice run --help"}));
  EXPECT_TRUE(fails(run_program({"inspect", "a.gguf", "b.gguf"}), 2, {"'b.gguf'"}));
}

TEST(CommandLine, AsksForQuotesAroundAPromptOfSeveralWords) {
  EXPECT_TRUE(fails(run_program({"run", "Why", "is", "it", "so?"}), 2, {"'is'", "quotes"}));
}

struct Refused {
  Program::Arguments arguments;
  Words words;
};

TEST(CommandLine, RefusesValuesOutOfRange) {
  const std::vector<Refused> all = {
      {{"--method", "psychic"}, {"--method", "auto, ar", "'psychic'"}},
      {{"--source", "oracle"}, {"--source oracle", "ngram"}},
      {{"--source", "ngram,ngram"}, {"--source"}},
      {{"--stages", "0"}, {"--stages", "1 or more", "'0'"}},
      {{"--stages", "-3"}, {"--stages"}},
      {{"--stages", "many"}, {"--stages", "whole number", "'many'"}},
      {{"--stages", "5"}, {"--stages 5", "4 layers"}},
      {{"--stages", "2000000000"}, {"--stages 2000000000", "4 layers"}},
      {{"--stages", "99999999999"}, {"--stages", "at most"}},
      {{"--stages", "99999999999999999999999"}, {"--stages"}},
      {{"--stages", "2", "--stages", "3"}, {"--stages", "more than once"}},
      {{"--stages"}, {"--stages needs a value"}},
      {{"--cuts", "2,2"}, {"--cuts", "between 1 and 3"}},
      {{"--cuts", "3,1"}, {"--cuts"}},
      {{"--cuts", "4"}, {"--cuts", "between 1 and 3"}},
      {{"--cuts", "1,two"}, {"--cuts", "'two'"}},
      {{"--cuts", ""}, {"--cuts"}},
      {{"--cuts", ","}, {"--cuts"}},
      {{"--cuts", "2", "--stages", "2"}, {"--cuts", "--stages", "together"}},
      {{"--width", "0"}, {"--width", "1 to 256"}},
      {{"--width", "257"}, {"--width"}},
      {{"--children", "0"}, {"--children"}},
      {{"--depth", "0"}, {"--depth"}},
      {{"--threads", "0"}, {"--threads", "1 to 256"}},
      {{"--threads", "100000"}, {"--threads", "1 to 256"}},
      {{"--executor", "magic"}, {"--executor", "threads or virtual"}},
      {{"--compute", "none"}, {"--compute", "full or lazy"}},
      {{"--compute", "lazy"}, {"--compute lazy", "--executor virtual"}},
      {{"--compute", "lazy", "--executor", "threads"}, {"--compute lazy", "--executor virtual"}},
      {{"--kv", "f64"}, {"--kv", "f16 or f32"}},
      {{"--verify", "trust"}, {"--verify", "match"}},
      {{"--context", "0"}, {"--context"}},
      {{"--context", "10000000"}, {"--context 10000000", "512 tokens"}},
      {{"-n", "0"}, {"--max-tokens", "1 or more"}},
      {{"-n", "-1"}, {"--max-tokens"}},
      {{"-n", "1.5"}, {"--max-tokens", "whole number"}},
      {{"--temp", "-1"}, {"--temp", "0 to 100"}},
      {{"--temp", "nan"}, {"--temp", "'nan'"}},
      {{"--temp", "inf"}, {"--temp"}},
      {{"--temp", "1e999"}, {"--temp"}},
      {{"--temp", "hot"}, {"--temp", "'hot'"}},
      {{"--temp", ""}, {"--temp"}},
      {{"--top-k", "-1"}, {"--top-k", "0 or more"}},
      {{"--top-p", "0"}, {"--top-p", "above 0 to 1"}},
      {{"--top-p", "2"}, {"--top-p"}},
      {{"--min-p", "3"}, {"--min-p", "0 to 1"}},
      {{"--repeat-penalty", "0"}, {"--repeat-penalty", "above 0"}},
      {{"--seed", "-1"}, {"--seed", "18446744073709551615"}},
      {{"--seed", "18446744073709551616"}, {"--seed"}},
      {{"--json=perhaps"}, {"--json takes no value"}},
      {{"--model", ""}, {"--model", "empty"}},
      {{"--trace", "no/such/folder/t.json"}, {"--trace", "no/such/folder"}},
      {{"--trace", "/"}, {"--trace", "folder"}},
  };
  for (const Refused& refused : all) {
    Program::Arguments arguments = {"run", "hello"};
    if (refused.arguments.front() != "--model") arguments.insert(arguments.end(), {"-m", small_model()});
    arguments.insert(arguments.end(), refused.arguments.begin(), refused.arguments.end());
    const Ran ran = run_program(arguments);
    EXPECT_TRUE(fails(ran, 2, refused.words)) << testing::PrintToString(refused.arguments);
    EXPECT_EQ(ran.out, "");
  }
}

TEST(CommandLine, AcceptsTheEndsOfTheRanges) {
  const std::vector<Program::Arguments> all = {
      {"--stages", "4"},
      {"--cuts", "1,2,3"},
      {"--width", "256", "--children", "64"},
      {"--threads", "256"},
      {"--context", "512"},
      {"-n", "2147483647"},
      {"--temp", "100", "--seed", "18446744073709551615"},
      {"--temp", "1e-40"},
      {"--temp", "1", "--top-k", "2147483647", "--top-p", "1e-30", "--min-p", "1"},
      {"--temp", "1", "--repeat-penalty", "1e-30"},
      {"--trace", "/dev/null"},
  };
  for (const auto& arguments : all) {
    Program::Arguments command = {"run", "hello", "-m", small_model()};
    if (arguments.front() != "-n") command.insert(command.end(), {"-n", "4"});
    command.insert(command.end(), arguments.begin(), arguments.end());
    const Ran ran = run_program(command);
    EXPECT_EQ(ran.status, 0) << testing::PrintToString(arguments) << ran.err;
  }
}

TEST(CommandLine, AListTakesOneArgumentAndLeavesThePromptAlone) {
  EXPECT_EQ(run_program({"run", "-m", small_model(), "-n", "2", "--cuts", "1,2", "hello"}).status, 0);
  EXPECT_EQ(run_program({"run", "-m", small_model(), "-n", "2", "--source", "ngram", "hello"}).status, 0);
}

}  // namespace
}  // namespace sluice::test

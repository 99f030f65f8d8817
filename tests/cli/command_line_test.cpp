// Command lines that make no sense are refused with one line that names what is wrong and what would be right.
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cli/program.h"
#include "method/option_table.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

using Words = std::vector<std::string>;

TEST(CommandLine, HelpOfEveryCommandShowsExamples) {
  for (const char* command :
       {"run", "chat", "serve", "demo", "bench", "plan", "train", "inspect", "stage", "up", "secret"}) {
    const Ran ran = run_program({command, "--help"});
    EXPECT_EQ(ran.status, 0) << command;
    EXPECT_NE(ran.out.find("Examples"), std::string::npos) << command;
    EXPECT_NE(ran.out.find(std::string("sluice ") + command), std::string::npos) << command;
    EXPECT_EQ(ran.err, "") << command;
  }
}

// The long names of the options in a help text, by the group that they stand in.
std::map<std::string, std::set<std::string>> groups_of(const std::string& help) {
  std::map<std::string, std::set<std::string>> groups;
  std::istringstream lines(help);
  std::string group;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] != ' ') group = line.substr(0, line.find(':'));
    std::smatch found;
    if (std::regex_search(line, found, std::regex("^  (-\\w,)?(--[a-z][a-z-]*)"))) groups[group].insert(found[2]);
  }
  return groups;
}

const std::set<std::string> kEverywhere = {"--help",   "--help-all",   "--model", "--draft",
                                           "--stages", "--max-tokens", "--seed"};
const std::map<std::string, std::set<std::string>> kGroups = {
    {"Where guesses come from", {"--head", "--source", "--ngram-corpus", "--draft-vocab"}},
    {"Verification", {"--verify", "--lossy", "--lossy-p"}},
    {"Pipeline",
     {"--cuts", "--executor", "--hosts", "--spares", "--relay", "--draft-on", "--secret", "--patience", "--activations",
      "--profile", "--compute", "--memo"}},
    {"Memory and devices",
     {"--context", "--kv", "--memory", "--compact", "--threads", "--device", "--draft-device", "--width-lock"}},
    {"Text", {"--top-k", "--top-p", "--min-p", "--repeat-penalty", "--chat-template-file", "--raw", "--ignore-eos"}}};

struct Helped {
  const char* command;
  std::set<std::string> common;  // beside what all have
  std::map<std::string, std::set<std::string>> groups;
};
const Helped kHelped[] = {
    {"run", {"--system", "--method", "--temp", "--stats", "--json", "--trace"}, {}},
    {"chat", {"--system", "--method", "--temp", "--stats"}, {}},
    {"serve",
     {"--host", "--port", "--alias", "--api-key", "--api-key-file", "--concurrency", "--method", "--temp", "--demo"},
     {{"Limits", {"--queue", "--connections", "--drain", "--idle-timeout", "--longest-gap", "--one-process"}}}},
    {"bench",
     {"--data", "--tasks", "--methods", "--temps", "--limit", "--json", "--overwrite"},
     {{"Conversations and load", {"--turns", "--concurrency", "--arrivals", "--arrivals-seed", "--also"}}}}};

TEST(CommandLine, HelpShowsTheCommonOptionsAndHelpAllEveryOneInItsGroup) {
  for (const auto& [command, own, groups] : kHelped) {
    std::map<std::string, std::set<std::string>> all = kGroups;
    all["Options"] = kEverywhere;
    all["Options"].insert(own.begin(), own.end());
    all.insert(groups.begin(), groups.end());
    for (const MethodOption& option : method_option_table()) all["Of methods"].insert(option.flag);
    const std::string help = run_program({command, "--help"}).out;
    EXPECT_EQ(groups_of(help), (std::map<std::string, std::set<std::string>>{{"Options", all["Options"]}})) << command;
    EXPECT_EQ(groups_of(run_program({command, "--help-all"}).out), all) << command;
    for (const auto& [group, options] : all) {
      EXPECT_NE(help.find(group), std::string::npos) << command << " does not name " << group;
      for (const std::string& option : options) {
        const Ran ran = run_program({command, "--no-such-option", option});
        EXPECT_EQ(ran.err.find("there is no option " + option), std::string::npos) << command << ran.err;
      }
    }
  }
}

TEST(CommandLine, WithoutACommandIsAnsweredByTheHelp) {
  const Ran bare = run_program({}), help = run_program({"--help"});
  EXPECT_EQ(bare.status, 0);
  EXPECT_EQ(bare.out, help.out);
  EXPECT_NE(bare.out.find("Examples"), std::string::npos);
}

TEST(CommandLine, HelpMayBeAskedForAsACommand) {
  EXPECT_EQ(run_program({"help"}).out, run_program({"--help"}).out);
  EXPECT_EQ(run_program({"help", "run"}).out, run_program({"run", "--help"}).out);
  EXPECT_EQ(run_program({"help", "train", "spd"}).out, run_program({"train", "spd", "--help"}).out);
  EXPECT_TRUE(fails(run_program({"help", "rnu"}), 2, {"no command 'rnu'", "run, chat"}));
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

TEST(CommandLine, NamesTheOptionThatIsNearest) {
  const std::vector<std::pair<const char*, const char*>> all = {
      {"--metod", "--method"},         {"--max-token", "--max-tokens"}, {"--temperature=1", "--temp"},
      {"--stage", "--stages"},         {"--systen", "--system"},        {"--exectuor", "--executor"},
      {"--ignore_eos", "--ignore-eos"}};
  for (const auto& [typed, meant] : all)
    EXPECT_TRUE(fails(run_program({"run", typed, "1"}), 2,
                      {std::string("no option ") + typed + ": perhaps " + meant + "; see sluice run --help"}));
  for (const char* far : {"--server", "--xyz", "--a", "--flash-attn", "-x"})
    EXPECT_TRUE(fails(run_program({"run", far}), 2, {std::string("no option ") + far + "; see sluice run --help"}));
  EXPECT_TRUE(fails(run_program({"demo", "--metod"}), 2, {"no option --metod; see"})) << "it has no such option";
}

TEST(CommandLine, KnowsWhatLlamaCppCallsThem) {
  const std::vector<std::pair<const char*, const char*>> all = {
      {"-p", "in quotes"},         {"-f", "- < FILE"},      {"-ngl", "--device"},          {"-t", "--threads"},
      {"--ctx-size", "--context"}, {"-md", "--draft"},      {"--predict", "--max-tokens"}, {"--rpc", "--hosts"},
      {"-ts", "--cuts"},           {"-cnv", "sluice chat"}, {"-sys", "--system"},          {"-s", "--seed"}};
  for (const auto& [theirs, ours] : all)
    EXPECT_TRUE(fails(run_program({"run", "hello", theirs, "1"}), 2,
                      {std::string("no option ") + theirs + ": ", ours, "see sluice run --help"}));
  EXPECT_TRUE(fails(run_program({"demo", "-t", "1"}), 2, {"no option -t; see"})) << "it has no threads";
  EXPECT_EQ(run_program({"run", "-m", small_model(), "-n", "1", "--", "-ngl"}).status, 0) << "a prompt";
}

TEST(CommandLine, SaysWhatIsMissing) {
  EXPECT_TRUE(fails(run_program({"up"}), 2, {"hosts is missing: File of hosts", "sluice up --help"}));
  EXPECT_TRUE(fails(run_program({"secret"}), 2, {"file is missing: A new file", "sluice secret --help"}));
  EXPECT_TRUE(fails(run_program({"train", "spd"}), 2, {" is missing: ", "sluice train spd --help"}));
  EXPECT_TRUE(fails(run_program({"train"}), 2, {"name what to train: data, spd", "sluice train --help"}));
}

TEST(CommandLine, SaysWhereAPromptWithoutACommandBelongs) {
  EXPECT_TRUE(fails(run_program({"Why is it so?"}), 2, {"'Why is it so?'", "sluice run"}));
}

TEST(CommandLine, SaysWhatAnswersAPromptOfAChat) {
  EXPECT_TRUE(fails(run_program({"chat", "hello"}), 2, {"'hello'", "sluice run answers one prompt"}));
}

TEST(CommandLine, NamesTheAddressThatIsNone) {
  EXPECT_TRUE(fails(run_program({"stage", "--listen", "127.0.0.1:99999"}), 2,
                    {"--listen: '127.0.0.1:99999' is no host", "HOST:PORT"}));
}

TEST(CommandLine, BehindTwoDashesStandsThePromptAlone) {
  EXPECT_TRUE(fails(run_program({"run", "--", "--help", "-n", "4"}), 2,
                    {"'-n' is one argument too many, after --: options stand before it"}));
}

TEST(CommandLine, ItemsOfAListStandTogether) {
  EXPECT_TRUE(fails(run_program({"bench", "--methods", "ar", "surge"}), 2, {"'surge'", "--methods ar,surge"}));
}

TEST(CommandLine, AsksForQuotesAroundAPromptOfSeveralWords) {
  EXPECT_TRUE(fails(run_program({"run", "Why", "is", "it", "so?"}), 2, {"'is'", "after the prompt 'Why'", "quotes"}));
}

struct Refused {
  Program::Arguments arguments;
  Words words;
};

TEST(CommandLine, RefusesValuesOutOfRange) {
  const std::vector<Refused> all = {
      {{"--method", "psychic"}, {"--method", "auto, ar", "'psychic'"}},
      {{"--source", "oracle"}, {"--source", "ngram, draft, head or mtp", "'oracle'"}},
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
      {{"--executor", "magic"}, {"--executor", "threads, hosts, mpi or virtual"}},
      {{"--compute", "none"}, {"--compute", "full, lazy or stored"}},
      {{"--compute", "lazy"}, {"--compute lazy", "--executor virtual"}},
      {{"--compute", "lazy", "--executor", "threads"}, {"--compute lazy", "--executor virtual"}},
      {{"--kv", "q8_0", "--device", "ggml:cpu"}, {"--kv q8_0 is for processors"}},
      {{"--kv", "f64"}, {"--kv", "f16, f32 or q8_0"}},
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

TEST(CommandLine, ASettingThatNoMethodOfTheRunReadsIsRefused) {
  const std::vector<std::pair<Program::Arguments, std::vector<std::string>>> all = {
      {{"--method", "sd", "--width", "8"}, {"--width is read by spd, ppsd, specpipe and surge", "here sd runs"}},
      {{"--method", "specpipe", "--budget", "4"}, {"--budget is read by ssd;", "here specpipe runs"}},
      {{"--method", "surge", "--levels", "2"}, {"--levels", "specpipe"}},
      {{"--method", "surge", "--group", "2"}, {"--group", "specpipe"}},
      {{"--method", "ar", "--children", "2"}, {"--children", "here ar runs"}},
      {{"--method", "specpipe", "--depth", "2"}, {"--depth", "sd, eagle3, p-eagle and ssd"}},
      {{"--method", "specinfer", "--depth", "2"}, {"--depth", "specinfer with --tree-nodes"}},
      {{"--method", "sd", "--tree", "1,2"}, {"--tree", "specinfer"}},
      {{"--method", "specinfer", "--tree", "1,2", "--tree-nodes", "7"}, {"--tree", "without --tree-nodes"}},
      {{"--method", "specpipe", "--tree-nodes", "7"}, {"--tree-nodes", "specinfer and eagle3"}},
      {{"--method", "sd", "--draft-rows", "7"}, {"--draft-rows", "surge"}},
      {{"--method", "sd", "--draft-vocab", "7"}, {"--draft-vocab", "with --draft"}},
      {{"--method", "ssd", "--draft-p-min", "0.5"}, {"--draft-p-min", "sd and p-eagle"}},
      {{"--method", "sd", "--fallback", "ngram"}, {"--fallback", "ssd"}},
      {{"--method", "sd", "--lookahead", "auto"}, {"--lookahead", "pipespec"}},
      {{"--method", "sd", "--lossy", "top-p", "--fallback", "auto"}, {"--fallback", "ssd"}},
      {{"--method", "ar", "--lossy", "relaxed"}, {"--lossy", "specpipe"}},
      {{"--method", "sd", "--lossy", "relaxed", "--lossy-p", "0.5"}, {"--lossy-p", "with --lossy top-p"}},
      {{"--method", "specinfer", "--replacement"}, {"--replacement", "with --verify reject"}},
      {{"--method", "specpipe", "--replacement"}, {"--replacement", "with --verify reject"}},
      {{"--method", "eagle3", "--verify", "reject", "--replacement"}, {"--replacement", "reject with --tree-nodes"}},
      {{"--method", "sd", "--verify", "reject", "--replacement"}, {"--replacement", "specinfer"}},
      {{"--method", "ssd", "--saguaro", "0.5"}, {"--saguaro", "with --verify reject"}},
      {{"--method", "ssd", "--verify", "reject", "--saguaro-tokens", "2"}, {"--saguaro-tokens", "with --saguaro"}},
      {{"--budget", "4"}, {"--budget", "here ar, surge, spd and eagle3 run"}},  // method auto
      {{"--draft", "x.gguf", "--depth", "4"}, {"--depth", "here ar and surge run"}},
  };
  for (const auto& [more, words] : all)
    for (const char* command : {"run", "chat"}) {
      Program::Arguments arguments = {command, "-m", small_model(), "--stages", "2", "--executor", "virtual"};
      arguments.insert(arguments.end(), more.begin(), more.end());
      const Ran ran = run_program(arguments);
      EXPECT_TRUE(fails(ran, 2, words)) << testing::PrintToString(more);
      EXPECT_EQ(ran.out, "");
    }
}

TEST(CommandLine, ASettingThatSomeMethodOfTheRunReadsIsTaken) {
  const std::vector<Program::Arguments> all = {
      {"--width", "8", "--children", "4"},
      {"--method", "surge", "--width", "8", "--draft-rows", "2"},
      {"--method", "specinfer", "--tree-nodes", "5", "--depth", "3"},
      {"--method", "sd", "--depth", "3", "--draft-p-min", "0.5", "--lossy", "top-p", "--lossy-p", "0.5"},
      {"--method", "ssd", "--verify", "reject", "--saguaro", "0.5", "--saguaro-tokens", "2", "--fallback", "auto"},
      {"--method", "specinfer", "--verify", "reject", "--replacement", "--tree", "2,1"},
      {"--method", "specpipe", "--verify", "reject", "--replacement", "--width", "4", "--draft", small_model()},
      {"--method", "surge", "--verify", "reject", "--replacement", "--width", "4", "--draft", small_model()},
  };
  for (const auto& more : all) {
    Program::Arguments arguments = {"run", "hello", "-n", "4", "-m", small_model(), "--executor", "virtual"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Ran ran = run_program(arguments);
    EXPECT_EQ(ran.status, 0) << testing::PrintToString(more) << ran.err;
  }
}

TEST(CommandLine, AListTakesOneArgumentAndLeavesThePromptAlone) {
  EXPECT_EQ(run_program({"run", "-m", small_model(), "-n", "2", "--cuts", "1,2", "hello"}).status, 0);
  EXPECT_EQ(run_program({"run", "-m", small_model(), "-n", "2", "--source", "ngram", "hello"}).status, 0);
}

}  // namespace
}  // namespace sluice::test

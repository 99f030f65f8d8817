// Draft models and what belongs to them, from the command line.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

using nlohmann::json;

// The first two layers of the small model and more than that: one guesses it now and then, the other often.
std::string draft_model(int32_t layers) {
  TinyModelSpec spec;
  spec.n_layers = layers;
  return write_tiny_model(spec, temp_path("draft-of-" + std::to_string(layers) + "-layers.gguf"));
}

Program::Arguments with(const Program::Arguments& more, const std::string& command = "run") {
  Program::Arguments arguments = {command, "-m", small_model(), "--threads", "1"};  // the machine may be busy
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

json answer(const Program::Arguments& more) {
  Program::Arguments arguments = with({"hello hello", "-n", "24", "--ignore-eos", "--json"});
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ran ran = run_program(arguments);
  EXPECT_EQ(ran.status, 0) << ran.err;
  return json::parse(ran.out, nullptr, false);
}

TEST(Draft, EveryMethodGivesTheSameTokensWithADraftModelOnEveryClock) {
  const std::string small = draft_model(2), large = draft_model(3);
  const json plain = answer({"--method", "ar"})["tokens"];
  ASSERT_EQ(plain.size(), 24u);
  for (const char* method : {"sd", "specinfer", "specpipe", "surge", "pipespec", "ssd"})
    for (const Program::Arguments& how :
         {Program::Arguments{"--executor", "virtual", "--stages", "3"},
          Program::Arguments{"--executor", "threads", "--stages", "2"},
          Program::Arguments{"--executor", "virtual", "--stages", "2", "--compute", "lazy", "--draft", large}}) {
      Program::Arguments arguments = {"--method", method, "--draft", small};
      arguments.insert(arguments.end(), how.begin(), how.end());
      const json j = answer(arguments);
      EXPECT_EQ(j["tokens"], plain) << method << ' ' << testing::PrintToString(how);
      EXPECT_EQ(j["method"], method);
      EXPECT_NE(j["source"].get<std::string>().find("draft"), std::string::npos) << j["source"];
      // On the real clock a target that is quicker than its draft may never find a guess to enter.
      if (j["simulated_time"]) {
        EXPECT_GT(j["drafted"].get<int>(), 0) << method;
      }
    }
}

// A draft model whose passes take ten times the target's and whose guesses are never right.
Program::Arguments hopeless(const Program::Arguments& more) {
  TinyModelSpec spec;
  spec.n_layers = 1;
  spec.seed = 99;
  Program::Arguments arguments = {
      "--draft", write_tiny_model(spec, temp_path("hopeless.gguf")), "--profile",
      write_file("hopeless.json", R"({"stage": {"points": [[1, 0.0005]]}, "draft": {"points": [[1, 0.005]]}})"),
      "--ignore-eos"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return with(arguments);
}

TEST(Draft, AMethodThatWasNamedAndIsFarSlowerThanPlainDecodingSaysSo) {
  const auto said = [](const Program::Arguments& more) {
    const Ran ran = run_program(hopeless(more));
    EXPECT_EQ(ran.status, 0) << ran.err;
    return ran.err;
  };
  const std::string would = "--method auto would have chosen plain decoding";
  const std::string slow = said({"hello hello", "-n", "64", "--method", "sd"});
  EXPECT_NE(slow.find(would), std::string::npos) << slow;
  EXPECT_NE(slow.find(" tok/s with sd, "), std::string::npos) << slow;
  for (const Program::Arguments& more : {Program::Arguments{"--method", "ar", "-n", "64"},
                                         {"--method", "sd", "-n", "24"},  // too short an answer to try anything in
                                         {"--method", "sd", "-n", "64", "--executor", "virtual"},
                                         {"--method", "sd", "-n", "64", "--verify", "reject"},
                                         {"--method", "sd", "-n", "64", "--trace", temp_path("slow.json")}})
    EXPECT_EQ(said(more).find(would), std::string::npos) << testing::PrintToString(more);
}

TEST(Draft, TheTrialOfANamedMethodStandsInTheJsonAndChangesNoToken) {
  const auto answer_of = [](const Program::Arguments& more) {
    return json::parse(run_program(hopeless(more)).out, nullptr, false);
  };
  const json named = answer_of({"hello hello", "-n", "64", "--method", "sd", "--json"});
  EXPECT_GT(named["trial"]["plain_tokens_per_second"], named["trial"]["speculative_tokens_per_second"]);
  EXPECT_EQ(named["method"], "sd");
  EXPECT_GT(named["drafted"], 40) << "it goes on whatever comes out";
  EXPECT_NEAR(named["acceptance_length"].get<double>(), 1.0, 0.2);
  const json plain = answer_of({"hello hello", "-n", "64", "--method", "ar", "--json"});
  EXPECT_EQ(plain["tokens"], named["tokens"]);
  EXPECT_FALSE(plain.contains("trial"));
}

TEST(Draft, SourcesMayBeNamedAndFused) {
  const std::string draft = draft_model(2);
  const json plain = answer({"--method", "ar"})["tokens"];
  for (const auto& [source, name] : {std::pair{"ngram", "ngram"}, {"draft", "draft"}, {"ngram,draft", "ngram+draft"}}) {
    const json j = answer({"--method", "specpipe", "--draft", draft, "--source", source, "--stages", "2"});
    EXPECT_EQ(j["source"], name);
    EXPECT_EQ(j["tokens"], plain);
  }
}

TEST(Draft, MayGuessAmongItsFirstTokensOnly) {
  const auto sd = [](const Program::Arguments& more) {
    Program::Arguments arguments = {"--method", "sd", "--draft", draft_model(3), "--executor", "virtual"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return answer(arguments);
  };
  const json all = sd({}), too_many = sd({"--draft-vocab", "1000000"}), one = sd({"--draft-vocab", "1"});
  EXPECT_EQ(too_many["accepted"], all["accepted"]) << "there are no more";
  EXPECT_EQ(one["tokens"], all["tokens"]);
  EXPECT_GT(one["drafted"].get<int>(), 0);
  EXPECT_LT(one["accepted"].get<int>(), all["accepted"].get<int>());
}

TEST(Draft, BenchComparesMethodsWithItAndCountsTurns) {
  const std::string folder = temp_path("draft-prompts"), out = temp_path("draft-bench.json");
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/talk.jsonl") << "{\"turns\": [\"hello\", \"and again\", \"once more\"]}\n";
  for (const Program::Arguments& how :
       {Program::Arguments{"--executor", "virtual", "--compute", "lazy", "--memo", temp_path("bench.memo")},
        Program::Arguments{"--executor", "threads"}}) {
    Program::Arguments arguments =
        with({"--data", folder, "--tasks", "talk", "-n", "8", "--turns", "2", "--stages", "2", "--methods",
              "ar,sd,specinfer,specpipe,surge,pipespec,ssd", "--draft", draft_model(2), "--json", out, "--overwrite"},
             "bench");
    arguments.insert(arguments.end(), how.begin(), how.end());
    const Ran ran = run_program(arguments);
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.out.find("identical: yes"), std::string::npos) << ran.out;
    std::ifstream file(out);
    const json j = json::parse(file, nullptr, false);
    EXPECT_EQ(j["runs"].size(), 7u * 2u) << "of three turns the first two";
    EXPECT_EQ(j["identical"], true);
  }
}

TEST(Draft, AnotherVocabularyIsRefusedWithBothNamesAndTheFirstToken) {
  TinyModelSpec spec;
  spec.tokenizer = "llama";
  const std::string other = write_tiny_model(spec, temp_path("other-vocabulary.gguf"));
  const Ran ran = run_program(with({"hello", "--draft", other}));
  EXPECT_TRUE(fails(ran, 2, {"--draft " + other, small_model(), "token 0 is", "<|endoftext|>"}));
}

TEST(Draft, AVocabularyThatIsOnlyLongerOrShorterIsFine) {
  for (const int32_t extra : {8, 100}) {
    TinyModelSpec spec;
    spec.n_layers = 2;
    spec.extra_tokens = extra;
    const std::string padded = write_tiny_model(spec, temp_path("padded-" + std::to_string(extra) + ".gguf"));
    EXPECT_EQ(answer({"--method", "specpipe", "--draft", padded, "--temp", "1"})["tokens"].size(), 24u) << extra;
  }
}

TEST(Draft, FilesThatAreNoModelsAreRefused) {
  EXPECT_TRUE(fails(run_program(with({"hello", "--draft", "no/such.gguf"})), 2, {"no/such.gguf"}));
  EXPECT_TRUE(fails(run_program(with({"hello", "--draft", ""})), 2, {"--draft", "empty"}));
  EXPECT_TRUE(fails(run_program(with({"hello", "--draft", write_file("text.gguf", "not a model")})), 2, {"text.gguf"}));
  EXPECT_TRUE(
      fails(run_program(with({"hello", "--draft", std::filesystem::temp_directory_path().string()})), 2, {"tmp"}));
}

TEST(Draft, OptionsThatNeedSomethingElseSaySo) {
  EXPECT_TRUE(fails(run_program(with({"hello", "--source", "draft"})), 2, {"--source draft", "--draft FILE"}));
  EXPECT_TRUE(fails(run_program(with({"hello", "--memo", temp_path("m")})), 2, {"--memo", "--compute lazy"}));
  EXPECT_TRUE(fails(run_program(with({"hello", "--draft", draft_model(2), "--executor", "virtual", "--profile",
                                      write_file("no-draft.json", R"({"stage": {"points": [[1, 0.001]]}})")})),
                    2, {"no-draft", "draft"}));
}

TEST(Draft, ValuesOutOfRangeAreRefused) {
  const std::vector<std::pair<Program::Arguments, std::vector<std::string>>> all = {
      {{"--tree", "1,x"}, {"--tree", "'x'"}},
      {{"--tree", "0"}, {"--tree", "1 to 16"}},
      {{"--tree", "17"}, {"--tree", "1 to 16"}},
      {{"--tree", ""}, {"--tree"}},
      {{"--tree", "16,16"}, {"--tree", "272", "255"}},
      {{"--tree", "16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16,16"}, {"--tree", "255"}},
      {{"--tree-nodes", "0"}, {"--tree-nodes", "1 to 255"}},
      {{"--tree-nodes", "256"}, {"--tree-nodes"}},
      {{"--draft-rows", "-1"}, {"--draft-rows", "0 to 256"}},
      {{"--draft-p-min", "1.5"}, {"--draft-p-min", "0 to 1"}},
      {{"--budget", "0"}, {"--budget", "1 to 128"}},
      {{"--budget", "129"}, {"--budget"}},
      {{"--lookahead", "-1"}, {"--lookahead", "0 to 64"}},
      {{"--lookahead", "65"}, {"--lookahead"}},
      {{"--depth", "65"}, {"--depth", "1 to 64"}},
  };
  for (const auto& [arguments, words] : all) {
    Program::Arguments command = with({"hello"});
    command.insert(command.end(), arguments.begin(), arguments.end());
    EXPECT_TRUE(fails(run_program(command), 2, words)) << testing::PrintToString(arguments);
  }
  EXPECT_TRUE(fails(run_program(with({"--data", ".", "--turns", "0"}, "bench")), 2, {"--turns", "1 or more"}));
  Program::Arguments hierarchy = with({"hello"});
  for (int i = 0; i < 9; ++i) hierarchy.insert(hierarchy.end(), {"--draft", "model.gguf"});
  EXPECT_TRUE(fails(run_program(hierarchy), 2, {"--draft", "9 times", "8"}));
}

TEST(Draft, TheEndsOfTheRangesWork) {
  const std::string draft = draft_model(2);
  for (const Program::Arguments& arguments : {Program::Arguments{"--method", "specinfer", "--tree", "16,14"},
                                              {"--method", "specinfer", "--tree-nodes", "255", "--depth", "64"},
                                              {"--method", "sd", "--depth", "64"},
                                              {"--method", "surge", "--width", "256", "--draft-rows", "256"},
                                              {"--method", "ssd", "--budget", "128", "--depth", "64"},
                                              {"--method", "ssd", "--budget", "1", "--depth", "1"},
                                              {"--method", "pipespec", "--lookahead", "64"}})
    for (const bool drafted : {false, true}) {
      Program::Arguments command = with({"hello", "-n", "12", "--ignore-eos", "--executor", "virtual"});
      command.insert(command.end(), arguments.begin(), arguments.end());
      if (drafted) command.insert(command.end(), {"--draft", draft});
      const Ran ran = run_program(command);
      EXPECT_EQ(ran.status, 0) << testing::PrintToString(arguments) << ran.err;
    }
}

TEST(Draft, TheWidthOfALevelMeansNothingToAChain) {
  const std::string draft = draft_model(3);
  const std::string folder = temp_path("chains"), out = temp_path("chains.json");
  std::filesystem::create_directory(folder);
  write_file("chains/talk.jsonl", R"({"turns": ["hello"]})");
  const auto drafted = [&](const char* width) {
    const Ran ran =
        run_program(with({"--data",     folder,    "--tasks", "talk",      "--methods",   "sd,specpipe", "--draft",
                          draft,        "--depth", "12",      "--context", "64",          "-n",          "20",
                          "--executor", "virtual", "--width", width,       "--overwrite", "--json",      out},
                         "bench"));
    EXPECT_EQ(ran.status, 0) << ran.err;
    std::ifstream file(out);
    const json j = json::parse(file, nullptr, false);
    EXPECT_EQ(j["runs"][0]["method"], "sd");
    return j["runs"][0]["drafted"];
  };
  EXPECT_EQ(drafted("1"), drafted("64"));
}

TEST(Memo, ASecondRunGivesTheSameAndADamagedFileIsRefused) {
  const std::string memo = temp_path("run.memo"), draft = draft_model(2);
  const Program::Arguments lazy = {"--executor", "virtual", "--compute", "lazy",  "--memo",   memo,
                                   "--draft",    draft,     "--method",  "surge", "--stages", "2"};
  const json first = answer(lazy);
  ASSERT_TRUE(std::filesystem::exists(memo));
  const auto size = std::filesystem::file_size(memo);
  const json second = answer(lazy);
  EXPECT_EQ(second["tokens"], first["tokens"]);
  EXPECT_EQ(second["steps"], first["steps"]);
  EXPECT_EQ(std::filesystem::file_size(memo), size) << "nothing new";
  std::filesystem::resize_file(memo, size - 1);
  Program::Arguments command = with({"hello"});
  command.insert(command.end(), lazy.begin(), lazy.end());
  EXPECT_TRUE(fails(run_program(command), 2, {"--memo " + memo, "damaged"}));
}

TEST(Memo, APlaceThatCannotBeWrittenIsRefusedBeforeAnythingIsComputed) {
  EXPECT_TRUE(
      fails(run_program(with({"hello", "--executor", "virtual", "--compute", "lazy", "--memo", "no/such/folder/m"})), 2,
            {"--memo no/such/folder/m", "there is no folder"}));
  EXPECT_TRUE(fails(run_program(with({"hello", "--executor", "virtual", "--compute", "lazy", "--memo", "/"})), 2,
                    {"--memo /", "folder"}));
}

}  // namespace
}  // namespace sluice::test

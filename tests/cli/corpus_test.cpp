// `--ngram-corpus`: the answers stay what they are, and files that are no texts are refused with one line.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

using nlohmann::json;

Ran run_with(const Program::Arguments& more) {
  Program::Arguments arguments = {"run", "-m",           small_model(), "--threads", "1", "hello hello", "-n",
                                  "24",  "--ignore-eos", "--json",      "--stages",  "2", "--executor",  "virtual"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments);
}

json answer(const Program::Arguments& more) {
  const Ran ran = run_with(more);
  EXPECT_EQ(ran.status, 0) << ran.err;
  return json::parse(ran.out, nullptr, false);
}

TEST(NgramCorpus, ATextThatHoldsTheAnswerSpeedsItUpAndNeverChangesIt) {
  const json plain = answer({"--method", "ar"});
  const std::string text = write_file("corpus.txt", "hello hello" + plain["text"].get<std::string>());
  for (const char* method : {"specpipe", "surge", "sd", "specinfer", "pipespec", "ssd"}) {
    const json without = answer({"--method", method}), with = answer({"--method", method, "--ngram-corpus", text});
    EXPECT_EQ(with["tokens"], plain["tokens"]) << method;
    EXPECT_EQ(with["source"], "ngram");
    EXPECT_GE(with["accepted"].get<int>(), without["accepted"].get<int>()) << method;
  }
}

TEST(NgramCorpus, JoinsADraftModelUnlessTheSourcesAreNamed) {
  const std::string text = write_file("corpus.txt", "hello hello");
  const Program::Arguments arguments = {"--method", "surge", "--draft", small_model(), "--ngram-corpus", text};
  EXPECT_EQ(answer(arguments)["source"], "ngram+draft");
  Program::Arguments named = arguments;
  named.insert(named.end(), {"--source", "ngram"});
  EXPECT_EQ(answer(named)["source"], "ngram");
  named.back() = "draft";
  EXPECT_TRUE(fails(run_with(named), 2, {"--ngram-corpus", "--source", "ngram,draft"}));
}

TEST(NgramCorpus, FilesThatAreNoTextsAreRefused) {
  const std::string folder = temp_path("corpus-folder");
  std::filesystem::create_directory(folder);
  const auto refused = [](const std::string& file, const std::string& word) {
    return fails(run_with({"--ngram-corpus", file}), 2, {"--ngram-corpus", file, word});
  };
  EXPECT_TRUE(refused(temp_path("no-such-corpus.txt"), "no readable file"));
  EXPECT_TRUE(refused(folder, "no readable file"));
  EXPECT_TRUE(refused(write_file("empty-corpus.txt", ""), "empty"));
  EXPECT_TRUE(refused(write_file("latin-1.txt", "caf\xe9 au lait"), "byte 4"));
  EXPECT_TRUE(refused("/dev/zero", "longer than 32 MiB"));
  EXPECT_TRUE(fails(run_with({"--ngram-corpus", ""}), 2, {"--ngram-corpus"}));
}

}  // namespace
}  // namespace sluice::test

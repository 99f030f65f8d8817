// `sluice train` from the command line.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/program.h"
#include "model/head_file.h"
#include "support/tiny_model.h"
#include "train/corpus.h"
#include "train/draft_vocabulary.h"
#include "train/gguf_writer.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

std::string fresh(const std::string& name) {
  const std::string path = temp_path(name);
  fs::remove_all(path);
  return path;
}

std::string prompt_file() {
  std::string lines;
  for (int i = 0; i < 60; ++i) lines += R"({"prompt": "hello number )" + std::to_string(i) + "\"}\n";
  return write_file("train-prompts.jsonl", lines);
}

Ran make_corpus(const std::string& folder, int tokens) {
  return run_program({"train", "data", "-m", small_model(), "--prompts", prompt_file(), "--out", folder, "--tokens",
                      std::to_string(tokens), "-n", "12", "--concurrency", "4", "--threads", "1"});
}

TEST(TrainCommand, ACorpusGrowsByTheSameCommandWithMoreTokens) {
  const std::string folder = fresh("command-corpus");
  const Ran first = make_corpus(folder, 40);
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_NE(first.out.find("to train on"), std::string::npos) << first.out;
  const auto before = Corpus::open(folder);
  ASSERT_TRUE(before);
  ASSERT_EQ(make_corpus(folder, 200).status, 0);
  const auto after = Corpus::open(folder);
  ASSERT_GT(after->train.size(), before->train.size());
  for (size_t i = 0; i < before->train.size(); ++i) EXPECT_EQ(after->train[i], before->train[i]);
}

TEST(TrainCommand, BadInputIsOneLineThatSaysWhatIsWrong) {
  const std::string folder = fresh("command-bad");
  const auto data = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"train", "data", "-m", small_model(), "--out", folder};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  };
  EXPECT_TRUE(fails(data({}), 2, {"no prompts", "--self"}));
  EXPECT_TRUE(fails(data({"--prompts", write_file("empty.jsonl", "")}), 2, {"empty.jsonl", "holds no prompt"}));
  EXPECT_TRUE(fails(data({"--prompts", write_file("bad.jsonl", "{\"prompt\": 7}\n")}), 2, {"bad.jsonl:1:"}));
  EXPECT_TRUE(fails(data({"--self", "5", "--exclude", temp_path("not-there")}), 2, {"--exclude"}));
  EXPECT_TRUE(fails(run_program({"train"}), 2, {"sluice train"}));
  EXPECT_FALSE(fs::exists(folder));
}

#ifdef SLUICE_TRAIN
TEST(TrainCommand, TrainsAndExportsEveryKindOfHead) {
  const std::string corpus = fresh("command-corpus-2");
  ASSERT_EQ(make_corpus(corpus, 300).status, 0);
  const std::vector<std::vector<std::string>> kinds = {{"spd", "--stages", "2", "--layers", "1"},
                                                       {"eagle3", "--taps", "1,2,3", "--unroll", "2"},
                                                       {"p-eagle", "--taps", "1,2,3", "--layers", "1", "--groups", "3"},
                                                       {"exit", "--stages", "4"},
                                                       {"draft", "--layers", "0,3"}};
  for (const auto& kind : kinds) {
    const std::string out = fresh("command-" + kind.front());
    std::vector<std::string> arguments = {"train"};
    arguments.insert(arguments.end(), kind.begin(), kind.end());
    for (const std::string argument :
         {"-m", small_model().c_str(), "--data", corpus.c_str(), "--out", out.c_str(), "--tokens", "60", "--batch", "2",
          "--held-out", "1", "--draft-vocab", "64", "--threads", "1"})
      arguments.push_back(argument);
    const Ran ran = run_program(arguments);
    ASSERT_EQ(ran.status, 0) << kind.front() << ": " << ran.err;
    const auto head = read_gguf(out + "/head.gguf");
    ASSERT_TRUE(head) << head.error().message;
    EXPECT_EQ(head->strings.at("general.architecture"), kind.front() == "eagle3" ? "eagle3" : "sluice-head");
    EXPECT_EQ(head->strings.at("sluice-head.target.fingerprint").size(), 16u);
  }
}

// The rows of the output matrix keep their tokens.
TEST(TrainCommand, ARunGoesOnWithItsVocabularyWhenTheCorpusHasGrown) {
  const std::string corpus = fresh("command-corpus-3"), out = fresh("command-grown");
  const auto train = [&](const char* tokens) {
    return run_program({"train",         "exit", "--exit",    "1",    "-m",      small_model(), "--data",     corpus,
                        "--out",         out,    "--tokens",  tokens, "--batch", "1",           "--held-out", "1",
                        "--draft-vocab", "40",   "--threads", "1"});
  };
  const auto vocabulary = [&] {
    const auto file = ModelFile::open(small_model());
    const auto head = HeadFile::open(out + "/head.gguf", *file);
    return head ? head->parameters().vocabulary : std::vector<Token>();
  };
  ASSERT_EQ(make_corpus(corpus, 40).status, 0);
  ASSERT_EQ(train("30").status, 0);
  const auto before = vocabulary();
  ASSERT_EQ(before.size(), 40u);
  ASSERT_EQ(make_corpus(corpus, 400).status, 0);
  ASSERT_NE(choose_draft_vocabulary(Corpus::open(corpus)->train, ModelFile::open(small_model())->hparams().n_vocab, 40),
            before)
      << "the larger corpus would have another one";
  const Ran more = train("60");
  ASSERT_EQ(more.status, 0) << more.err;
  EXPECT_EQ(vocabulary(), before);
}

TEST(TrainCommand, ACorpusThatIsNoneIsNamed) {
  EXPECT_TRUE(fails(run_program({"train", "exit", "--exit", "1", "-m", small_model(), "--data", temp_path("not-there"),
                                 "--out", fresh("command-none")}),
                    2, {"not-there", "sluice train data"}));
}
#else
TEST(TrainCommand, ABuildWithoutLibtorchSaysSo) {
  EXPECT_TRUE(fails(run_program({"train", "exit", "--exit", "1", "-m", small_model(), "--data", "x", "--out", "y"}), 1,
                    {"libtorch-dev", "-DSLUICE_TRAIN=ON"}));
}
#endif

}  // namespace
}  // namespace sluice::test

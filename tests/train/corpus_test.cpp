#include "train/corpus.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/tiny_model.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

std::string fresh_folder(const std::string& name) {
  const std::string path = temp_path(name);
  fs::remove_all(path);
  return path;
}

Example example(uint64_t id, int32_t n) {
  Example e{.id = id, .temperature = 0.5f, .n_prompt = 2};
  for (int32_t i = 0; i < n; ++i) e.tokens.push_back(static_cast<Token>(id) * 100 + i);
  return e;
}

const nlohmann::json kSettings = {{"model", "tiny"}, {"seed", 1}};

TEST(Corpus, HoldsWhatWasWrittenBySplit) {
  const std::string folder = fresh_folder("corpus-plain");
  auto writer = CorpusWriter::open(folder, kSettings);
  ASSERT_TRUE(writer) << writer.error().message;
  ASSERT_TRUE(writer->append(Split::kTrain, example(1, 5)));
  ASSERT_TRUE(writer->append(Split::kHeldOut, example(2, 3)));
  ASSERT_TRUE(writer->append(Split::kTrain, example(3, 9)));
  EXPECT_EQ(writer->answer_tokens(), 3 + 1 + 7);
  const auto corpus = Corpus::open(folder);
  ASSERT_TRUE(corpus) << corpus.error().message;
  EXPECT_EQ(corpus->train, (std::vector{example(1, 5), example(3, 9)}));
  EXPECT_EQ(corpus->held_out, (std::vector{example(2, 3)}));
  EXPECT_EQ(corpus->settings, kSettings);
}

TEST(Corpus, GoesOnAfterAKillAtAnyByte) {
  const std::string folder = fresh_folder("corpus-killed");
  const std::string shard = folder + "/train-00000.tokens";
  uint64_t before = 0, after = 0;
  {
    auto writer = CorpusWriter::open(folder, kSettings);
    ASSERT_TRUE(writer && writer->append(Split::kTrain, example(1, 5)));
    before = fs::file_size(shard);
    ASSERT_TRUE(writer->append(Split::kTrain, example(2, 7)));
    after = fs::file_size(shard);
  }
  for (uint64_t size = after - 1; size > before; size -= 3) {
    fs::resize_file(shard, size);
    EXPECT_EQ(Corpus::open(folder)->train.size(), 1u) << size;
    auto writer = CorpusWriter::open(folder, kSettings);
    ASSERT_TRUE(writer) << writer.error().message;
    EXPECT_TRUE(writer->holds(1));
    EXPECT_FALSE(writer->holds(2));
    ASSERT_TRUE(writer->append(Split::kTrain, example(2, 7)));
    EXPECT_EQ(Corpus::open(folder)->train, (std::vector{example(1, 5), example(2, 7)}));
  }
}

TEST(Corpus, OtherSettingsAndForeignFoldersAreRefused) {
  const std::string folder = fresh_folder("corpus-other");
  ASSERT_TRUE(CorpusWriter::open(folder, kSettings));
  const auto other = CorpusWriter::open(folder, {{"model", "tiny"}, {"seed", 2}});
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("seed = 1, not 2"), std::string::npos) << other.error().message;
  EXPECT_EQ(other.error().kind, ErrorKind::kInput);
  EXPECT_FALSE(CorpusWriter::open(fs::path(folder).parent_path().string(), kSettings));
  EXPECT_FALSE(Corpus::open(folder + "/nowhere"));
}

TEST(Corpus, ADiskWithoutSpaceIsAnErrorThatLosesNothing) {
  const std::string folder = fresh_folder("corpus-full");
  ASSERT_TRUE(CorpusWriter::open(folder, kSettings)->append(Split::kTrain, example(1, 5)));
  fs::remove(folder + "/held-out-00000.tokens");
  fs::create_symlink("/dev/full", folder + "/held-out-00000.tokens");
  const auto writer = CorpusWriter::open(folder, kSettings);
  ASSERT_FALSE(writer);
  EXPECT_EQ(Corpus::open(folder).has_value(), false);
  fs::remove(folder + "/held-out-00000.tokens");
  EXPECT_EQ(Corpus::open(folder)->train, (std::vector{example(1, 5)}));
}

}  // namespace
}  // namespace sluice::test

#include "pipeline/memo.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "support/tiny_model.h"

namespace sluice {
namespace {

using test::temp_path;

PathKey path(std::initializer_list<uint64_t> tokens) {
  PathKey key;
  for (const uint64_t token : tokens) key = key.with(token);
  return key;
}

TopLogits top(int32_t n) {
  TopLogits top{.entries = {}, .log_sum = 0.5 * n};
  for (int32_t i = 0; i < n; ++i) top.entries.push_back({100 * n + i, 7.0f - static_cast<float>(i)});
  return top;
}

Memo some() {
  Memo memo;
  memo.keep(path({1}), Draw{5, -0.5f});
  memo.keep(path({1, 2}), Draw{6, -1.5f});
  memo.keep(path({1}), top(0));
  memo.keep(path({2}), top(3));
  memo.keep(path({3}), top(64));
  return memo;
}

std::string read(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write(const std::string& file, const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; }

TEST(Memo, FindsWhatWasKeptAndNothingElse) {
  const Memo memo = some();
  ASSERT_NE(memo.find_draw(path({1, 2})), nullptr);
  EXPECT_EQ(memo.find_draw(path({1, 2}))->token, 6);
  EXPECT_EQ(memo.find_draw(path({2, 1})), nullptr);
  EXPECT_EQ(memo.find_draw(path({2})), nullptr) << "guesses are no draws";
  EXPECT_EQ(memo.find_top(path({1, 2})), nullptr) << "nor the other way round";
}

TEST(Memo, AFileGivesBackEverything) {
  const std::string file = temp_path("memo");
  ASSERT_TRUE(some().save(file));
  Memo memo;
  memo.keep(path({9}), Draw{9, 0.0f});
  ASSERT_TRUE(memo.load(file));
  EXPECT_EQ(memo.find_draw(path({9}))->token, 9) << "what was there stays";
  EXPECT_EQ(memo.find_draw(path({1}))->token, 5);
  EXPECT_EQ(memo.find_draw(path({1, 2}))->logprob, -1.5f);
  for (const int32_t n : {0, 3, 64}) {
    const TopLogits* found = memo.find_top(path({n == 0 ? 1u : n == 3 ? 2u : 3u}));
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->log_sum, 0.5 * n);
    ASSERT_EQ(found->entries.size(), static_cast<size_t>(n));
    for (int32_t i = 0; i < n; ++i) {
      EXPECT_EQ(found->entries[static_cast<size_t>(i)].token, 100 * n + i);
      EXPECT_EQ(found->entries[static_cast<size_t>(i)].logit, 7.0f - static_cast<float>(i));
    }
  }
}

TEST(Memo, NoFileIsNoMemoYet) {
  Memo memo;
  EXPECT_TRUE(memo.load(temp_path("absent")));
  EXPECT_EQ(memo.find_draw(path({1})), nullptr);
}

TEST(Memo, ADamagedFileIsAnErrorWhereverTheDamageIs) {
  const std::string file = temp_path("damaged");
  ASSERT_TRUE(some().save(file));
  const std::string whole = read(file);
  const auto refused = [&](const std::string& bytes) {
    write(file, bytes);
    Memo memo;
    const Status status = memo.load(file);
    return !status && status.error().kind == ErrorKind::kInput &&
           status.error().message.find("--memo " + file) != std::string::npos && memo.find_draw(path({1})) == nullptr;
  };
  for (size_t length = 0; length < whole.size(); ++length) EXPECT_TRUE(refused(whole.substr(0, length))) << length;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
    EXPECT_TRUE(refused(bytes)) << "byte " << at;
  }
  EXPECT_TRUE(refused(whole + "x"));
  EXPECT_TRUE(refused(std::string(1000, '\xff')));
  EXPECT_FALSE(refused(whole));
}

TEST(Memo, AFileThatCannotBeWrittenIsAnErrorAndLeavesNothing) {
  const Status status = some().save(temp_path("no/such/folder/memo"));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::kRuntime);
  EXPECT_NE(status.error().message.find("--memo"), std::string::npos);
  const std::string folder = temp_path("a-folder");
  std::filesystem::create_directory(folder);
  EXPECT_FALSE(some().save(folder));
  EXPECT_FALSE(std::filesystem::exists(folder + ".tmp"));
}

TEST(PathKey, TellsPathsAndWaysOfDrawingApart) {
  std::set<std::pair<uint64_t, uint64_t>> keys;
  size_t n = 0;
  const auto add = [&](PathKey key) {
    ++n;
    keys.emplace(key.high, key.low);
  };
  add({});
  for (uint64_t a = 0; a < 40; ++a) {
    add(path({a}));
    for (uint64_t b = 0; b < 40; ++b) {
      add(path({a, b}));
      add(path({a, b, 7}));
    }
  }
  const PathKey text = path({50, 51});
  for (const SamplingParams& sampling :
       {SamplingParams{}, SamplingParams{.temperature = 0.5f}, SamplingParams{.temperature = 0.5f, .top_k = 1},
        SamplingParams{.temperature = 0.5f, .seed = 1}, SamplingParams{.temperature = 0.5f, .choice = 1},
        SamplingParams{.temperature = 0.5f, .top_p = 0.5f}, SamplingParams{.temperature = 0.5f, .min_p = 0.5f},
        SamplingParams{.repeat_penalty = 1.1f}, SamplingParams{.logit_bias = {{3, 1.0f}}},
        SamplingParams{.logit_bias = {{3, 2.0f}}}, SamplingParams{.presence_penalty = 0.5f},
        SamplingParams{.frequency_penalty = 0.5f}, SamplingParams{.frequency_penalty = 0.5f, .answer_from = 1}})
    add(text.with(sampling));
  EXPECT_EQ(keys.size(), n);
}

TEST(PathKey, GreedyDrawsDoNotDependOnTheSeed) {
  EXPECT_EQ(PathKey{}.with(SamplingParams{.seed = 1}), PathKey{}.with(SamplingParams{.seed = 2}));
  EXPECT_EQ(PathKey{}.with(SamplingParams{.top_k = 5}), PathKey{}.with(SamplingParams{}));
}

}  // namespace
}  // namespace sluice

#include "train/generate.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "support/harness.h"

namespace sluice::test {
namespace {

class Generate : public testing::Test {
 protected:
  // Runs until `stop_after` answers were stored, 0: to the end.
  GenerateFigures run(const std::string& name, int32_t concurrency, int64_t stop_after = 0) {
    auto corpus = CorpusWriter::open(temp_path(name), {{"test", name}});
    EXPECT_TRUE(corpus);
    JobList jobs(groups_, 2, {0, 1}, 3);
    GenerateHooks hooks;
    hooks.encode = [&](const std::string& text) { return opened_.tokenizer.encode(text, true, false); };
    hooks.openings = {{.text = opening_, .tokens = *hooks.encode("user")}};
    const size_t before = corpus->examples();
    hooks.interrupted = [&] {
      return stop_after > 0 && corpus->examples() >= before + static_cast<size_t>(stop_after);
    };
    hooks.progress = [](int64_t, double) {};
    const GenerateOptions options{.tokens = 200, .concurrency = concurrency, .max_answer = 12, .max_prompt = 40};
    const auto engine = make_engine(opened_, {.context = 64, .n_cells = 2048});
    auto figures = generate(*engine, opened_.tokenizer, jobs, *corpus, exclusion_, options, hooks);
    EXPECT_TRUE(figures) << figures.error().message;
    return *figures;
  }
  static std::map<uint64_t, Example> by_id(const std::string& name) {
    std::map<uint64_t, Example> examples;
    const auto corpus = Corpus::open(temp_path(name));
    for (const auto* split : {&corpus->train, &corpus->held_out})
      for (const Example& example : *split) {
        EXPECT_TRUE(examples.emplace(example.id, example).second) << "twice";
      }
    return examples;
  }
  void SetUp() override {
    for (const char* name : {"generated", "narrow", "resumed"}) std::filesystem::remove_all(temp_path(name));
    for (int i = 0; i < 30; ++i) groups_[0].prompts.push_back("hello number " + std::to_string(i));
  }

  const Opened& opened_ = six_layers();
  std::vector<PromptGroup> groups_ = {{"a", {}},
                                      {"b", {"one fish two fish red fish blue fish", std::string(300, 'x')}}};
  Exclusion exclusion_;
  std::string opening_;
};

TEST_F(Generate, AnswersAreWhatPlainDecodingSays) {
  exclusion_.add("fish", "One fish, two fish, red fish, blue fish.");
  const GenerateFigures figures = run("generated", 4);
  EXPECT_GE(figures.tokens, 200);
  EXPECT_GT(figures.excluded, 0);
  EXPECT_GT(figures.too_long, 0);
  const auto examples = by_id("generated");
  ASSERT_FALSE(examples.empty());
  for (const auto& [id, example] : examples) {
    RequestSpec spec{.prompt = {example.tokens.begin(), example.tokens.begin() + example.n_prompt}, .max_tokens = 12};
    spec.sampling.temperature = example.temperature;
    spec.sampling.top_k = 50;
    spec.sampling.choice = static_cast<uint32_t>(id);
    const std::vector<Token> answer(example.tokens.begin() + example.n_prompt, example.tokens.end());
    EXPECT_EQ(answer, plain_decoding(opened_, spec)) << id;
  }
}

TEST_F(Generate, NeitherTheNumberOfRequestsNorAnInterruptChangesAnAnswer) {
  run("generated", 4);
  run("narrow", 1);
  run("resumed", 3, 5);
  run("resumed", 3);
  const auto wide = by_id("generated"), narrow = by_id("narrow"), resumed = by_id("resumed");
  size_t shared = 0;
  for (const auto* other : {&narrow, &resumed})
    for (const auto& [id, example] : *other)
      if (const auto it = wide.find(id); it != wide.end()) {
        EXPECT_EQ(it->second, example);
        ++shared;
      }
  EXPECT_GT(shared, wide.size());
}

TEST_F(Generate, LeavesOutPromptsOfItsOwnThatAreNoText) {
  opening_ = "\xff";
  const GenerateFigures figures = run("generated", 4);
  EXPECT_EQ(figures.unfinished, 2);
  EXPECT_GE(figures.tokens, 200);
}

TEST(OpeningOfUserTurn, IsWhatAllTurnsBeginWith) {
  const auto encode = [](const std::string& text) -> Result<std::vector<Token>> {
    std::vector<Token> tokens = {7, 8};
    tokens.insert(tokens.end(), text.begin(), text.end());
    tokens.push_back(9);
    return tokens;
  };
  EXPECT_EQ(opening_of_user_turn("", encode)->tokens, (std::vector<Token>{7, 8}));
  EXPECT_EQ(opening_of_user_turn("ab", encode)->tokens, (std::vector<Token>{7, 8, 'a', 'b'}));
  EXPECT_EQ(opening_of_user_turn("ab", encode)->text, "ab");
  const auto bare = [](const std::string& text) -> Result<std::vector<Token>> { return std::vector<Token>{text[0]}; };
  EXPECT_FALSE(opening_of_user_turn("", bare));
}

}  // namespace
}  // namespace sluice::test

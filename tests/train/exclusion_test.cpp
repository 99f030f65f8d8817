#include "train/exclusion.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/tiny_model.h"

namespace sluice::test {
namespace {

const std::string kQuestion =
    "Darrell and Allen's ages are in the ratio of 7:11. If their total age now is 162, calculate Allen's age 10 years "
    "from now.";

Exclusion of(const std::string& question) {
  Exclusion exclusion;
  exclusion.add("q", question);
  return exclusion;
}

TEST(Exclusion, FindsAQuestionWhateverItsCaseSpacesAndPunctuation) {
  const Exclusion exclusion = of(kQuestion);
  EXPECT_TRUE(exclusion.find(kQuestion));
  EXPECT_TRUE(
      exclusion.find("Please answer:\n darrell AND allen s ages are in the ratio of 7 11 if their total age -"));
  EXPECT_FALSE(exclusion.find("Darrell and Allen's ages are in the ratio of 7:12."));
}

TEST(Exclusion, ARunOfThirteenWordsIsEnoughAndTwelveAreNot) {
  const Exclusion exclusion = of("a b c d e f g h i j k l m n o p");
  EXPECT_TRUE(exclusion.find("x c d e f g h i j k l m n o y"));
  EXPECT_FALSE(exclusion.find("x c d e f g h i j k l m n y"));
}

TEST(Exclusion, OfShortQuestionsAllWordsCount) {
  const Exclusion exclusion = of("Name three kinds of cheese.");
  EXPECT_TRUE(exclusion.find("Could you name three kinds of cheese?"));
  EXPECT_FALSE(exclusion.find("name three kinds of bread"));
  const Exclusion tiny = of("Say hello!");
  EXPECT_TRUE(tiny.find("say hello"));
  EXPECT_FALSE(tiny.find("I say hello to you"));
}

TEST(Exclusion, ReadsTheFilesOfABenchmarkAndPassesOverPromptFiles) {
  const std::string folder = temp_path("exclusion");
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/a.jsonl")
      << R"({"id": 1, "turns": ["How do birds know where south is?", "And fish then, my friend?"]})" << '\n';
  std::ofstream(folder + "/prompts.jsonl") << R"({"prompt": "How many eggs are in a dozen?"})" << '\n';
  const auto exclusion = Exclusion::load({folder});
  ASSERT_TRUE(exclusion) << exclusion.error().message;
  EXPECT_EQ(exclusion->size(), 2u);
  ASSERT_TRUE(exclusion->find("and fish then my friend"));
  EXPECT_EQ(*exclusion->find("and fish then my friend"), "a.jsonl:1");
  EXPECT_FALSE(exclusion->find("How many eggs are in a dozen?"));
  EXPECT_FALSE(Exclusion::load({folder + "/prompts.jsonl"}));
  EXPECT_FALSE(Exclusion::load({folder + "/none"}));
}

}  // namespace
}  // namespace sluice::test

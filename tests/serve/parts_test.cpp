// What an answer holds becomes parts, each whole before the next begins, however the answer comes.
#include <gtest/gtest.h>

#include <random>

#include "serve/answer_parts.h"

namespace sluice::test {
namespace {

using Kind = AnswerPart::Kind;
using Step = AnswerParts::Step;

std::string letters(const std::vector<Step>& steps) {
  std::string all;
  for (const Step& step : steps) all += "bme"[static_cast<size_t>(step.kind)] + std::to_string(step.part) + step.more;
  return all;
}

AssistantDelta call(size_t index, ToolCall more) {
  AssistantDelta delta;
  delta.tool_calls.push_back({index, std::move(more)});
  return delta;
}

TEST(AnswerParts, OneEndsBeforeTheNextBegins) {
  AnswerParts parts;
  EXPECT_EQ(letters(parts.take({.content = "", .reasoning = "hm", .tool_calls = {}})), "b0m0hm");
  EXPECT_EQ(letters(parts.take({.content = "yes", .reasoning = ".", .tool_calls = {}})), "m0.e0b1m1yes");
  EXPECT_EQ(letters(parts.take(call(0, {.id = "1", .name = "f", .arguments = ""}))), "e1b2");
  EXPECT_EQ(letters(parts.take(call(0, {.id = "", .name = "", .arguments = "{}"}))), "m2{}");
  EXPECT_EQ(letters(parts.take(call(1, {.id = "2", .name = "g", .arguments = "{"}))), "e2b3m3{");
  EXPECT_EQ(letters(parts.take({.content = "so", .reasoning = "", .tool_calls = {}})), "e3b4m4so");
  EXPECT_EQ(letters(parts.take({})), "");
  EXPECT_EQ(letters(parts.finish()), "e4");
  EXPECT_EQ(letters(parts.finish()), "");
  ASSERT_EQ(parts.all().size(), 5u);
  EXPECT_EQ(parts.all()[0].text, "hm.");
  EXPECT_EQ(parts.all()[2].name, "f");
  EXPECT_EQ(parts.all()[3].text, "{");
}

TEST(AnswerParts, OfAnEmptyAnswerThereAreNone) {
  AnswerParts parts;
  EXPECT_TRUE(parts.take({}).empty());
  EXPECT_TRUE(parts.finish().empty());
  EXPECT_TRUE(parts.all().empty());
}

TEST(AnswerParts, OfAWholeMessageTheyAreWhatItHolds) {
  const AssistantMessage message = {
      .content = "yes", .reasoning = "hm", .tool_calls = {{.id = "1", .name = "f", .arguments = "{}"}}};
  AnswerParts parts;
  parts.take(delta_of(message));
  ASSERT_EQ(parts.all().size(), 3u);
  EXPECT_EQ(parts.all()[0].kind, Kind::kReasoning);
  EXPECT_EQ(parts.all()[1].text, "yes");
  EXPECT_EQ(parts.all()[2].id, "1");
}

TEST(AnswerParts, StepsComeToTheWholeHoweverTheTextIsCut) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    AnswerParts parts;
    std::vector<Step> steps;
    for (int i = 0; i < 20; ++i) {
      AssistantDelta more;
      if (random() % 3 == 0) more.reasoning = std::string(random() % 3, 'r');
      if (random() % 3 == 0) more.content = std::string(random() % 3, 'c');
      for (const Step& step : parts.take(more)) steps.push_back(step);
    }
    for (const Step& step : parts.finish()) steps.push_back(step);
    std::vector<std::string> texts;
    bool open = false;
    for (const Step& step : steps) {
      EXPECT_EQ(open, step.kind != Step::Kind::kBegin);
      open = step.kind != Step::Kind::kEnd;
      if (step.kind == Step::Kind::kBegin) texts.emplace_back();
      EXPECT_EQ(step.part + 1, texts.size());
      texts.back() += step.more;
    }
    EXPECT_FALSE(open);
    ASSERT_EQ(texts.size(), parts.all().size());
    for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], parts.all()[i].text);
  }
}

}  // namespace
}  // namespace sluice::test

// Where a grammar begins in an answer that calls a tool when it wants to; and that the forms of calls that families
// have are read.
#include "grammar/trigger_finder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "chat/answer_parser.h"
#include "grammar/grammar_reader.h"
#include "support/harness.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;
using Kind = GrammarTrigger::Kind;

// As it is found while the text grows by `step` bytes at a time.
std::optional<size_t> found(const std::vector<GrammarTrigger>& triggers, const std::string& text, size_t step) {
  const TriggerFinder finder(triggers);
  for (size_t end = 0; end < text.size();) {
    const size_t fresh = std::min(step, text.size() - end);
    end += fresh;
    if (const auto place = finder.find(std::string_view(text).substr(0, end), fresh)) return place;
  }
  return std::nullopt;
}

TEST(TriggerFinder, FindsTheFirstOfItsTriggers) {
  const std::string text = "so <b><call>[1]";
  for (const size_t step : {1, 2, 3, 7, 50}) {
    EXPECT_EQ(found({{Kind::kWord, "<call>"}}, text, step), 6u);
    EXPECT_EQ(found({{Kind::kWord, "[1]"}, {Kind::kWord, "<call>"}}, text, step), 6u);
    EXPECT_EQ(found({{Kind::kWord, "<CALL>"}}, text, step), std::nullopt);
    EXPECT_EQ(found({{Kind::kPattern, "<c[a-z]+>"}}, text, step), 6u);
    EXPECT_EQ(found({{Kind::kPattern, "<b>(<call>)"}}, text, step), 6u) << "at its first group";
    EXPECT_EQ(found({{Kind::kPattern, "(x)?<call>"}}, text, step), 6u) << "no group took part";
  }
  EXPECT_EQ(found({{Kind::kWholePattern, "(?:<b>)?(<call>)[\\s\\S]*"}}, "<b><call>", 1), 3u);
  EXPECT_EQ(found({{Kind::kWholePattern, "(?:<b>)?(<call>)[\\s\\S]*"}}, text, 1), std::nullopt)
      << "it begins otherwise";
}

TEST(TriggerFinder, APatternsAnchorsAreTheEndsOfTheAnswer) {
  for (const Kind kind : {Kind::kPattern, Kind::kWholePattern}) {
    EXPECT_EQ(found({{kind, "^\\s+to$"}}, " to", 1), 0u);
    EXPECT_EQ(found({{kind, "^\\s+to$"}}, "so\n to be", 1), std::nullopt) << "a line of prose";
  }
}

TEST(TriggerFinder, WhatIsNoPatternThrowsAndIsRefusedByAReader) {
  EXPECT_THROW(TriggerFinder({{Kind::kPattern, "(a"}}), std::exception);
  const GrammarReader reader = GrammarReader::open(six_layers().model, six_layers().tokenizer).value();
  const auto read = reader.read({GrammarKind::kGbnf, R"(root ::= "a")", "", {{Kind::kPattern, "(a"}}});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().kind, ErrorKind::kInput);
  EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
}

// What takes for ever, or all memory, ends in an error instead.
TEST(TriggerFinder, PatternsThatTakeTooLongThrow) {
  const TriggerFinder finder({{Kind::kPattern, "(?:a|aa|b?a)*(?:a*)*c"}});
  EXPECT_THROW((void)finder.find(std::string(5000, 'a'), 5000), std::exception);
}

// Calls by every published template that has tools: their form is read, and what begins it is found.
TEST(TriggerFinder, TheFormsOfAllFamiliesCallsAreRead) {
  const fs::path published = fs::path(SLUICE_SOURCE_DIR) / ".venv/llama/share/llama-common/templates";
  if (!fs::exists(published)) GTEST_SKIP() << "tools/setup installs them";
  AnswerRequest asked{.conversation = {.messages = {{"user", "What is the weather in Paris?"}}, .now = 0}};
  asked.conversation.tools = nlohmann::ordered_json::parse(R"([{"type": "function", "function": {
      "name": "get_weather", "description": "The weather of a place", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}])");
  const GrammarReader reader = GrammarReader::open(six_layers().model, six_layers().tokenizer).value();
  int n_lazy = 0;
  for (const auto& entry : fs::directory_iterator(published)) {
    if (entry.path().extension() != ".jinja") continue;
    SCOPED_TRACE(entry.path().filename());
    std::ostringstream source;
    source << std::ifstream(entry.path()).rdbuf();
    const auto parser = AnswerParser::open(source.str());
    ASSERT_TRUE(parser) << parser.error().message;
    const auto format = parser->format(asked);
    if (!format || format->grammar.empty() || !format->lazy) continue;
    ++n_lazy;
    EXPECT_FALSE(format->triggers.empty());
    EXPECT_NO_THROW(TriggerFinder(format->triggers));
    const auto read = reader.read({GrammarKind::kGbnf, format->grammar, "", format->triggers});
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->triggers, format->triggers);
  }
  EXPECT_GT(n_lazy, 20);
}

}  // namespace
}  // namespace sluice::test

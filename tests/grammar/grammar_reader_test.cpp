// Forms of answers, as requests say them, become grammars or errors of one line.
#include "grammar/grammar_reader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "grammar/gbnf.h"
#include "grammar/grammars.h"
#include "support/children.h"
#include "support/dear_grammar.h"
#include "support/harness.h"

namespace sluice::test {
namespace {

const GrammarReader& reader() {
  static const GrammarReader opened = GrammarReader::open(six_layers().model, six_layers().tokenizer).value();
  return opened;
}

// Whether an answer is of a form, whole.
bool is_of(const GrammarSource& source, const std::string& answer) {
  const ModelFile& model = six_layers().model;
  const Tokenizer& tokenizer = six_layers().tokenizer;
  const auto constraint = constrain_by(model.vocabulary(), model.n_logits())(reader().read(source).value());
  auto tokens = tokenizer.encode(answer, false, false).value();
  tokens.push_back(tokenizer.eos());
  for (const Token token : tokens) {
    const TokenMask* permitted = constraint->permitted();
    if (permitted != nullptr && !permitted->has(token)) return false;
    constraint->accept(token);
  }
  return true;
}

TEST(GrammarReader, AnyJsonObject) {
  const GrammarSource json{GrammarKind::kJson, ""};
  EXPECT_TRUE(is_of(json, R"({"a": [1, -2.5e3, true, null, "x\n\u00e9"], "b": {}})"));
  EXPECT_TRUE(is_of(json, "{}"));
  EXPECT_FALSE(is_of(json, "[1]"));
  EXPECT_FALSE(is_of(json, R"({"a": 1)"));
  EXPECT_FALSE(is_of(json, R"(Sure: {"a": 1})"));
}

TEST(GrammarReader, JsonOfASchema) {
  const GrammarSource schema{GrammarKind::kJsonSchema,
                             R"({"type": "object", "properties": {"city": {"type": "string", "maxLength": 8},
                                 "sky": {"enum": ["blue", "grey"]}, "degrees": {"type": "integer"}},
                                 "required": ["city", "sky"]})"};
  EXPECT_TRUE(is_of(schema, R"({"city": "Paris", "sky": "blue"})"));
  EXPECT_TRUE(is_of(schema, "{\n  \"city\": \"Paris\",\n  \"sky\": \"grey\", \"degrees\": -3}"));
  EXPECT_FALSE(is_of(schema, R"({"city": "Paris"})"));
  EXPECT_FALSE(is_of(schema, R"({"city": "Paris", "sky": "red"})"));
  EXPECT_FALSE(is_of(schema, R"({"city": "Paris and more", "sky": "blue"})"));
  EXPECT_FALSE(is_of(schema, R"({"city": "Paris", "sky": "blue", "wind": 3})"));
  EXPECT_FALSE(is_of(schema, "{" + std::string(30, '\n') + R"("city": "Paris", "sky": "blue"})")) << "endless space";
}

TEST(GrammarReader, RegularExpressionsAndRules) {
  EXPECT_TRUE(is_of({GrammarKind::kRegex, "[a-c]{2,3}(x|yy)?"}, "abyy"));
  EXPECT_FALSE(is_of({GrammarKind::kRegex, "[a-c]{2,3}(x|yy)?"}, "aby"));
  const GrammarSource list{GrammarKind::kGbnf, "# a list\nroot ::= item+\nitem ::= \"- \" [^\\n]+ \"\\n\"\n"};
  EXPECT_TRUE(is_of(list, "- one\n- two\n"));
  EXPECT_FALSE(is_of(list, "- one\n two\n"));
}

TEST(GrammarReader, RulesAreReadAsLlamaCppWritesThem) {
  EXPECT_EQ(ebnf_of("root ::= a\nspace ::= | \" \" | \"\\n\"{1,2} [ \\t]{0,20}\n"),
            "root ::= a\nspace ::= \"\" | \" \" | \"\\n\"{1,2} [ \\t]{0,20}\n");
  EXPECT_EQ(ebnf_of("a ::= ( \"|)\" | ) [|)] .*  # | )\n"), "a ::= ( \"|)\" | \"\" ) [|)] [^\\x00]*  # | )\n");
  EXPECT_EQ(ebnf_of("a ::= b-1.2 |"), "a ::= b-1.2 | \"\"");
  EXPECT_EQ(ebnf_of("a ::= \"x"), "a ::= \"x");
  const GrammarSource spaced{GrammarKind::kGbnf, "root ::= \"a\" space \"b\" (\"c\" | )\nspace ::= | \" \""};
  for (const char* answer : {"ab", "a b", "a bc"}) EXPECT_TRUE(is_of(spaced, answer));
  EXPECT_FALSE(is_of(spaced, "a  b"));
}

TEST(GrammarReader, WhatIsWrongIsSaidInOneLine) {
  for (const GrammarSource& wrong : {GrammarSource{GrammarKind::kGbnf, "root ::= missing"},
                                     {GrammarKind::kGbnf, "root = \"x\""},
                                     {GrammarKind::kGbnf, "other ::= \"x\""},
                                     {GrammarKind::kGbnf, ""},
                                     {GrammarKind::kGbnf, "root ::= \"x"},
                                     {GrammarKind::kRegex, "(a"},
                                     {GrammarKind::kRegex, "[z-a]"},
                                     {GrammarKind::kJsonSchema, "{"},
                                     {GrammarKind::kJsonSchema, R"({"type": "thing"})"},
                                     {GrammarKind::kJsonSchema, R"({"$ref": "#/nowhere"})"},
                                     {GrammarKind::kGbnf, "root ::= " + std::string(20000, '(')},
                                     {GrammarKind::kGbnf, "root ::= a\na[max_tokens=3] ::= [a-z]*"},
                                     {GrammarKind::kGbnf, std::string("root ::= \"a\0\"", 14)}}) {
    const auto read = reader().read(wrong);
    ASSERT_FALSE(read) << wrong.text.substr(0, 80);
    EXPECT_EQ(read.error().kind, ErrorKind::kInput);
    EXPECT_EQ(read.error().message.find('\n'), std::string::npos) << read.error().message;
    EXPECT_GT(read.error().message.size(), 10u);
    EXPECT_LT(read.error().message.size(), 600u);
  }
}

// What would take for ever, or all memory there is.
TEST(GrammarReader, WhatIsTooMuchIsRefusedInTime) {
  std::string doubled = R"({"$defs": {"d0": {"type": "string"})";
  for (int i = 1; i <= 30; ++i) {
    const std::string below = R"({"$ref": "#/$defs/d)" + std::to_string(i - 1) + R"("})";
    doubled += R"(, "d)" + std::to_string(i) + R"(": {"type": "object", "properties": {"a": )" + below + R"(, "b": )" +
               below + R"(}, "required": ["a", "b"]})";
  }
  doubled += R"(}, "$ref": "#/$defs/d30"})";
  const std::string nested = "root ::= " + std::string(
                                               "(((((((((\"a\" [a-z]{0,200}){0,200}){0,200}){0,200}){0,200})"
                                               "{0,200}){0,200}){0,200}){0,200})");
  const auto start = std::chrono::steady_clock::now();
  (void)reader().read({GrammarKind::kJsonSchema, doubled});  // named once each, so it may do
  (void)reader().read({GrammarKind::kGbnf, nested});
  (void)reader().read({GrammarKind::kRegex, "((((a{1,500}){1,500}){1,500}){1,500}){1,500}"});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  EXPECT_TRUE(reader().read({GrammarKind::kGbnf, R"(root ::= "x")"})) << "the next one is read as if nothing had been";
}

double seconds_of(const std::function<void()>& act) {
  const auto start = std::chrono::steady_clock::now();
  act();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(GrammarReader, WhatWasRefusedIsNotReadAgain) {
  const GrammarSource dear{GrammarKind::kGbnf, dear_grammar("a")};
  Result<AnswerGrammar> first, second;
  const double once = seconds_of([&] { first = reader().read(dear); });
  const double again = seconds_of([&] { second = reader().read(dear); });
  ASSERT_FALSE(first);
  EXPECT_NE(first.error().message.find("it took more than"), std::string::npos) << first.error().message;
  EXPECT_EQ(first.error().kind, ErrorKind::kInput);
  EXPECT_GT(once, 1.0);
  ASSERT_FALSE(second);
  EXPECT_LT(again, 0.5);
  EXPECT_EQ(second.error().message, first.error().message);
}

TEST(GrammarReader, WithoutItsProcessNothingIsSaidOfTheGrammar) {
  const auto before = children();
  const auto own = GrammarReader::open(six_layers().model, six_layers().tokenizer).value();
  const GrammarSource word{GrammarKind::kGbnf, R"(root ::= "x")"}, other{GrammarKind::kGbnf, R"(root ::= "y")"};
  EXPECT_TRUE(own.read(word));
  stop_children_but(before);
  const auto read = own.read(other);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().kind, ErrorKind::kRuntime);
  EXPECT_TRUE(own.read(word)) << "what is known needs no process";
}

}  // namespace
}  // namespace sluice::test

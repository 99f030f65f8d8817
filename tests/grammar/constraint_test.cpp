// Which tokens a grammar permits, beside what its texts say.
#include <gtest/gtest.h>

#include <chrono>

#include "grammar/grammars.h"
#include "support/harness.h"

namespace sluice::test {
namespace {

std::unique_ptr<Constraint> constraint(const std::string& grammar) {
  const ModelFile& model = six_layers().model;
  return constrain_by(model.vocabulary(), model.n_logits())({.rules = grammar, .begin = "", .triggers = {}});
}

std::vector<Token> tokens_of(const std::string& text) {
  return six_layers().tokenizer.encode(text, /*add_special=*/false, /*parse_special=*/false).value();
}

// Whether what may come next is what begins, or is, the rest of one of these texts.
void expect_goes_on(Constraint& constraint, const std::vector<std::string>& rests) {
  const TokenMask* permitted = constraint.permitted();
  ASSERT_NE(permitted, nullptr);
  const Tokenizer& tokenizer = six_layers().tokenizer;
  for (Token token = 0; token < tokenizer.size(); ++token) {
    const std::string piece = tokenizer.piece(token);
    const auto begins = [&](const std::string& rest) { return !piece.empty() && rest.starts_with(piece); };
    const bool ends = tokenizer.ends_generation(token) && std::ranges::count(rests, "") > 0;
    EXPECT_EQ(permitted->has(token), std::ranges::any_of(rests, begins) || ends) << token << " '" << piece << "'";
  }
}

TEST(Constraint, PermitsWhatTheGrammarSays) {
  const auto answer = constraint(R"(root ::= "the sky" | "token")");
  expect_goes_on(*answer, {"the sky", "token"});
  std::string said;
  for (const Token token : tokens_of("the sky")) {
    answer->accept(token);
    said += six_layers().tokenizer.piece(token);
    std::vector<std::string> rests;
    for (const std::string text : {"the sky", "token"})
      if (text.starts_with(said)) rests.push_back(text.substr(said.size()));
    expect_goes_on(*answer, rests);
  }
}

TEST(Constraint, BehindItsEndAllMayCome) {
  const auto answer = constraint(R"(root ::= "is")");
  for (const Token token : tokens_of("is")) answer->accept(token);
  answer->accept(six_layers().tokenizer.eos());
  EXPECT_EQ(answer->permitted(), nullptr);
  answer->accept(tokens_of("x").front());
  EXPECT_EQ(answer->permitted(), nullptr);
}

TEST(Constraint, WhatIsTakenBackWasNeverThere) {
  const auto answer = constraint(R"(root ::= "is" [0-9])");
  const auto is = tokens_of("is"), seven = tokens_of("7"), x = tokens_of("x");
  for (const Token token : is) answer->accept(token);
  answer->accept(seven.front());
  answer->accept(six_layers().tokenizer.eos());
  answer->accept(x.front());
  answer->take_back(2);
  expect_goes_on(*answer, {""});
  answer->take_back(1);
  answer->accept(x.front());  // which may not come
  EXPECT_EQ(answer->permitted(), nullptr);
  answer->take_back(1);
  expect_goes_on(*answer, {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"});
  answer->take_back(is.size());
  expect_goes_on(*answer, {"is"});
}

// Goes on with a letter again and again, until the constraint fails; gives how often. No call takes long.
size_t goes_on(Constraint& constraint, size_t most) {
  const Token letter = tokens_of("a").front();
  size_t times = 0;
  for (; times < most && !constraint.failed(); ++times) {
    const auto start = std::chrono::steady_clock::now();
    constraint.accept(letter);
    constraint.permitted();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(3)) << "after " << times;
  }
  return times;
}

TEST(Constraint, AFormThatCanBeReadInManyWaysFailsBeforeItTakesLong) {
  const auto answer = constraint(R"(root ::= root root | "a")");
  EXPECT_LT(goes_on(*answer, 100000), 100000u);
  ASSERT_TRUE(answer->failed());
  const TokenMask* permitted = answer->permitted();
  ASSERT_NE(permitted, nullptr);
  for (Token token = 0; token < six_layers().tokenizer.size(); ++token)
    EXPECT_EQ(permitted->has(token), six_layers().tokenizer.ends_generation(token)) << token;
  answer->accept(tokens_of("a").front());
  answer->take_back(1);
  EXPECT_TRUE(answer->failed());
}

TEST(Constraint, OtherFormsGoOnForEver) {
  for (const char* grammar : {R"(root ::= "a"+)", R"(root ::= "a" root | "a")", R"(root ::= root "a" | "a")",
                              R"(root ::= ("a" | "aa")+)", R"(root ::= [^b]*)"}) {
    const auto answer = constraint(grammar);
    EXPECT_EQ(goes_on(*answer, 3000), 3000u) << grammar;
  }
}

std::unique_ptr<Constraint> from_trigger(const std::string& grammar, GrammarTrigger trigger) {
  const ModelFile& model = six_layers().model;
  return constrain_by(model.vocabulary(),
                      model.n_logits())({.rules = grammar, .begin = "", .triggers = {std::move(trigger)}});
}

TEST(Constraint, BeforeItsTriggerAllMayComeBehindItWhatTheGrammarSays) {
  const auto answer = from_trigger(R"(root ::= "<call>" [0-9]{2} "x")", {GrammarTrigger::Kind::kWord, "<call>"});
  EXPECT_EQ(answer->permitted(), nullptr);
  for (const Token token : tokens_of("the <sky> <cal")) {
    answer->accept(token);
    EXPECT_EQ(answer->permitted(), nullptr);
  }
  for (const Token token : tokens_of("l>")) answer->accept(token);
  expect_goes_on(*answer, {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"});
  for (const Token token : tokens_of("12")) answer->accept(token);
  expect_goes_on(*answer, {"x"});
  answer->accept(tokens_of("x").front());
  expect_goes_on(*answer, {""});
  EXPECT_FALSE(answer->failed());
}

TEST(Constraint, ATriggerThatIsTakenBackWasNeverThere) {
  const auto answer = from_trigger(R"(root ::= "<" [0-9] ">")", {GrammarTrigger::Kind::kWord, "<"});
  const auto before = tokens_of("is"), seven = tokens_of("7"), mark = tokens_of("<"), end = tokens_of(">");
  for (const Token token : before) answer->accept(token);
  answer->accept(mark.front());
  answer->accept(seven.front());
  expect_goes_on(*answer, {">"});
  answer->take_back(1);
  expect_goes_on(*answer, {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"});
  answer->take_back(1);
  EXPECT_EQ(answer->permitted(), nullptr);
  answer->accept(end.front());
  EXPECT_EQ(answer->permitted(), nullptr);
  answer->accept(mark.front());
  answer->accept(seven.front());
  answer->take_back(before.size() + 3);
  EXPECT_EQ(answer->permitted(), nullptr);
  answer->accept(mark.front());
  EXPECT_NE(answer->permitted(), nullptr);
}

TEST(Constraint, WhatATriggerDoesNotBeginIsLeftAlone) {
  const auto answer = from_trigger(R"(root ::= "<7>")", {GrammarTrigger::Kind::kPattern, "(<)[a-z]"});
  for (const Token token : tokens_of("is <b")) answer->accept(token);
  EXPECT_EQ(answer->permitted(), nullptr);
  EXPECT_FALSE(answer->failed());
  answer->accept(tokens_of("7").front());
  answer->take_back(1);
  EXPECT_EQ(answer->permitted(), nullptr);
}

TEST(Constraint, WhatIsNoGrammarThrows) {
  const auto answer = constraint("this is none");
  EXPECT_THROW(answer->permitted(), std::exception);
}

}  // namespace
}  // namespace sluice::test

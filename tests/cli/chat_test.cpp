// `sluice chat`, from a pipe and at a terminal.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <optional>

#include "cli/program.h"
#include "cli/terminal.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

Program::Arguments chat_with(const Program::Arguments& more) {
  Program::Arguments arguments = {"chat", "-m", small_model()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Ran chat(const std::string& input, const Program::Arguments& more = {"-n", "12"}) {
  return run_program(chat_with(more), {.input = input});
}

TEST(ChatFromAPipe, AnswersEveryLine) {
  const Ran ran = chat("hello\nand again\n");
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.err, "");
  const Ran first = chat("hello\n");
  EXPECT_TRUE(ran.out.starts_with(first.out));
  EXPECT_GT(ran.out.size(), first.out.size());
}

TEST(ChatFromAPipe, EndsWithItsInput) {
  EXPECT_EQ(chat("").status, 0);
  EXPECT_EQ(chat("").out, "");
  EXPECT_EQ(chat("hello").out, chat("hello\n").out);
  EXPECT_EQ(chat("hello\n/exit\nand again\n").out, chat("hello\n").out);
  EXPECT_EQ(chat("\n\nhello\n\n").out, chat("hello\n").out);
}

TEST(ChatFromAPipe, ResetStartsAnew) {
  const std::string once = chat("hello\n").out;
  EXPECT_EQ(chat("hello\n/reset\nhello\n").out, once + once);
}

TEST(ChatFromAPipe, ABadLineDoesNotLoseTheConversation) {
  const std::string two_turns = chat("hello\nand again\n").out;
  const Ran invalid = chat("hello\n\xff\xfe\nand again\n");
  EXPECT_EQ(invalid.out, two_turns);
  EXPECT_TRUE(fails(invalid, 0, {"UTF-8"}));
  const Ran too_long = chat("hello\n" + std::string(4000, 'x') + "\nand again\n");
  EXPECT_EQ(too_long.out, two_turns);
  EXPECT_TRUE(fails(too_long, 0, {"tokens", "/reset"}));
}

TEST(ChatFromAPipe, ACommandThatThereIsNotIsNoQuestion) {
  const std::string two_turns = chat("hello\nand again\n").out;
  for (const char* typed : {"/help", "/quit", "/?"}) {
    const Ran ran = chat("hello\n" + std::string(typed) + "\nand again\n");
    EXPECT_EQ(ran.out, two_turns);
    EXPECT_TRUE(fails(ran, 0, {typed, "/reset starts anew", "/exit"}));
  }
  EXPECT_GT(chat("/etc/hosts is what?\n").out.size(), 1u) << "a question";
}

TEST(ChatFromAPipe, LinesMayEndAsOnWindows) { EXPECT_EQ(chat("hello\r\n/exit\r\n").out, chat("hello\n").out); }

TEST(ChatFromAPipe, IsTheSameByEveryMethod) {
  const std::string input = "hello\nhello hello\n";
  const std::string plain = chat(input, {"-n", "24", "--method", "ar"}).out;
  EXPECT_EQ(chat(input, {"-n", "24", "--method", "specpipe", "--stages", "4"}).out, plain);
}

TEST(ChatFromAPipe, AnInterruptEndsIt) {
  Program program({"chat", "-m", small_model(), "--ignore-eos", "-n", "400", "--executor", "threads", "--profile",
                   write_file("slow.json", R"({"stage": {"points": [[1, 0.05]]}})")},
                  {.input = "hello\nand again\n"});
  program.read_at_least(5);
  program.signal(SIGINT);
  const Ran ran = program.wait();
  EXPECT_TRUE(fails(ran, 130, {"interrupted"}));
  EXPECT_GE(ran.out.size(), 5u);
}

class ChatAtATerminal : public testing::Test {
 protected:
  void SetUp() override {
    if (!Terminal::can_be_had()) GTEST_SKIP() << "the system gives no terminal";
    // A pipeline so slow that an answer can be interrupted.
    terminal_.emplace(chat_with({"--ignore-eos", "-n", "400", "--method", "ar", "--profile",
                                 write_file("slow.json", R"({"stage": {"points": [[1, 0.02]]}})")}));
  }

  std::optional<Terminal> terminal_;
};

TEST_F(ChatAtATerminal, CtrlCStopsAnAnswerAndThenTheChat) {
  ASSERT_TRUE(terminal_->shows("> ")) << terminal_->screen();
  for (int turn = 0; turn < 2; ++turn) {
    terminal_->type("hello\n");
    ASSERT_TRUE(terminal_->shows("hello\r\n")) << terminal_->screen();
    ASSERT_TRUE(terminal_->shows_more()) << terminal_->screen();  // the answer
    terminal_->type(kCtrlC);
    ASSERT_TRUE(terminal_->shows("tok/s")) << terminal_->screen();
    ASSERT_TRUE(terminal_->shows("> ")) << terminal_->screen();
  }
  terminal_->type(kCtrlC);
  EXPECT_EQ(terminal_->wait(), 130) << terminal_->screen();
}

TEST_F(ChatAtATerminal, CtrlDEndsIt) {
  ASSERT_TRUE(terminal_->shows("> "));
  terminal_->type(kCtrlD);
  EXPECT_EQ(terminal_->wait(), 0) << terminal_->screen();
}

}  // namespace
}  // namespace sluice::test

// A model's file that somebody writes to while it is used.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "cli/program.h"
#include "support/tiny_model.h"

namespace sluice::test {
namespace {

namespace fs = std::filesystem;

// Long answers of small steps: they block on a full pipe long before they end.
std::string long_winded_model(const std::string& name) {
  TinyModelSpec spec;
  spec.n_layers = 1;
  spec.extra_tokens = 2000;  // an embedding of many pages
  spec.context_length = 100'000;
  return write_tiny_model(spec, temp_path(name));
}

// Runs until there is some of the answer, stands still while `meddle` is at work, and goes on.
Ran run_while(const Program::Arguments& files, const std::function<void()>& meddle) {
  Program::Arguments arguments = {"run", "--raw",  "--ignore-eos", "--threads", "1",
                                  "-c",  "100000", "-n",           "90000",     "hello"};
  arguments.insert(arguments.end(), files.begin(), files.end());
  Program program(arguments);
  program.read_at_least(20);
  program.signal(SIGSTOP);
  meddle();
  program.signal(SIGCONT);
  return program.wait();
}

TEST(ChangedFiles, ATruncatedModelEndsTheRunWithItsName) {
  const std::string model = long_winded_model("truncated.gguf");
  for (const uintmax_t left : {uintmax_t{0}, fs::file_size(model) / 8}) {
    const std::string path = long_winded_model("truncated.gguf");
    EXPECT_TRUE(fails(run_while({"-m", path}, [&] { fs::resize_file(path, left); }), 1, {path, "start again"}));
  }
}

TEST(ChangedFiles, AModelThatIsOverwrittenInPlaceEndsTheRunWithItsName) {
  const std::string path = long_winded_model("overwritten.gguf");
  const Ran ran = run_while({"-m", path}, [&] {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(fs::file_size(path) / 2));
    file << std::string(64, '\0');
  });
  EXPECT_TRUE(fails(ran, 1, {path, "changed"}));
}

TEST(ChangedFiles, SoDoesADraftModel) {
  const std::string model = long_winded_model("target.gguf"), draft = long_winded_model("draft.gguf");
  const Ran ran = run_while({"-m", model, "--draft", draft, "--method", "sd"},
                            [&] { std::fstream(draft, std::ios::in | std::ios::out | std::ios::binary) << "GGUF"; });
  EXPECT_TRUE(fails(ran, 1, {draft, "changed"}));
}

TEST(ChangedFiles, AChangeInTheLastSecondIsFoundAtTheEnd) {
  const std::string path = long_winded_model("late.gguf");
  Program program({"run", "--raw", "--ignore-eos", "--threads", "1", "-n", "2000", "-m", path, "hello"});
  program.read_at_least(1);
  program.signal(SIGSTOP);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << "GGUF";
  program.signal(SIGCONT);
  EXPECT_TRUE(fails(program.wait(), 1, {path, "changed"}));
}

TEST(ChangedFiles, OneThatIsReplacedStaysWhatItIs) {
  const std::string path = write_tiny_model({}, temp_path("replaced.gguf"));
  const Program::Arguments arguments = {"run", "--raw", "--ignore-eos", "--threads", "1",
                                        "-n",  "1000",  "-m",           path,        "hello"};
  const Ran expected = run_program(arguments);
  ASSERT_EQ(expected.status, 0) << expected.err;
  Program program(arguments);
  program.read_at_least(1);
  program.signal(SIGSTOP);
  fs::rename(write_tiny_model({.seed = 2}, temp_path("replacement.gguf")), path);
  program.signal(SIGCONT);
  const Ran ran = program.wait();
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_EQ(ran.out, expected.out);
}

}  // namespace
}  // namespace sluice::test

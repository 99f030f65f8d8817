// Runs the program `sluice` as a user would, and looks at what it leaves: its exit status, stdout and stderr.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <string>
#include <vector>

namespace sluice::test {

struct Ran {
  int status = 0;  // the exit status; minus the signal's number if one ended it
  std::string out, err;
};

struct Streams {
  std::string input;    // of stdin
  std::string out;      // a file for stdout; empty: it is captured
  bool no_out = false;  // stdout is closed
  std::string program;  // a copy of the program; empty: the one that was built
};

class Program {
 public:
  using Arguments = std::vector<std::string>;

  explicit Program(const Arguments& arguments, const Streams& streams = {});
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();

  // Waits until there are `n` bytes of stdout, or its end.
  void read_at_least(size_t n);
  // Waits for the first line of stdout; what has come if it ends before.
  std::string read_line();
  void close_out();
  void signal(int number);
  pid_t pid() const { return pid_; }
  // Reads the rest and waits for the end. A program that is still there after a minute is killed.
  Ran wait();

 private:
  bool read_some(int timeout_ms);

  pid_t pid_ = -1;
  int out_ = -1;
  std::string err_path_, text_;
};

Ran run_program(const Program::Arguments& arguments, const Streams& streams = {});

// A small model that the tests write once: llama, four layers, a context of 512 tokens, a chat template.
const std::string& small_model();

// Where the program was built.
const std::string& program_path();

// A failure as INTERFACE wants it: this status, and one line on stderr that begins with "sluice: " and holds each of
// `words`.
testing::AssertionResult fails(const Ran& ran, int status, const std::vector<std::string>& words);

// Writes a file into the tests' folder; gives its path.
std::string write_file(const std::string& name, const std::string& text);

}  // namespace sluice::test

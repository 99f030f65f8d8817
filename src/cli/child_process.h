// A program that is started and read line by line, with the end of its standard input as the sign to end.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace sluice {

// Thread safety: none.
class ChildProcess {
 public:
  // Found in PATH. It hears no Ctrl-C of this terminal; stdout and stderr come together. Errors (kRuntime) name it.
  static Result<ChildProcess> start(const std::vector<std::string>& words);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  // Kills it if it is still there.
  ~ChildProcess();

  // Readable when it has said something, or ended. -1: all has been read.
  int output() const { return output_; }
  // Reads what there is; to be called when that is readable.
  void read_some();
  // The next whole line that has been read, or the last one without its end once all has been.
  std::optional<std::string> next_line();

  void write(const std::string& text);  // at most what a pipe holds
  void end_input();
  void terminate();
  // Waits for its end: its exit status; minus the signal's number if one ended it. REQUIRES: all has been read.
  int wait();

 private:
  ChildProcess(pid_t pid, int input, int output) : pid_(pid), input_(input), output_(output) {}

  pid_t pid_;
  int input_, output_;
  std::string text_;
};

// A word for a shell, whatever is in it.
std::string quoted_for_shell(const std::string& word);

}  // namespace sluice

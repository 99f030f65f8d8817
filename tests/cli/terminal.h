// A terminal with the program `sluice` in it, and somebody at its keyboard.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace sluice::test {

class Terminal {
 public:
  // Whether the system gives terminals: some containers don't.
  static bool can_be_had();
  explicit Terminal(const std::vector<std::string>& arguments);
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal();

  void type(const std::string& keys);
  // Waits, a minute at most, until the screen shows `text` after what was waited for before. Whether it does.
  bool shows(const std::string& text);
  // The same, for any text.
  bool shows_more();
  // Waits for the end: the exit status, minus the signal's number if one ended it.
  int wait();
  const std::string& screen() const { return screen_; }

 private:
  bool read_some();

  pid_t pid_ = -1;
  int master_ = -1;
  std::string screen_;
  size_t seen_ = 0;
};

inline constexpr const char* kCtrlC = "\x03";
inline constexpr const char* kCtrlD = "\x04";

}  // namespace sluice::test

// A progress bar with the time left, on stderr, if that is a terminal; else a line now and then.
#pragma once

#include <chrono>
#include <string>

namespace sluice {

class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  // share: 0 to 1. note: a few words behind the bar.
  void show(double share, const std::string& note = "");
  void finish();

 private:
  std::string what_;
  bool terminal_;
  std::chrono::steady_clock::time_point begin_, shown_;
};

}  // namespace sluice

// A progress bar with the time left, on stderr, if that is a terminal; else a line now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "model/hub.h"

namespace sluice {

class ProgressBar {
 public:
  // `begin`: the share that was done before; the time left is judged by what was done since.
  explicit ProgressBar(std::string what, double begin = 0);
  // share: 0 to 1. note: a few words behind the bar.
  void show(double share, const std::string& note = "");
  void finish();

 private:
  std::string what_;
  double begin_share_;
  bool terminal_;
  std::chrono::steady_clock::time_point begin_, shown_;
};

// A bar for each file of a named model that comes; Ctrl-C stops it.
OnDownload show_downloads();
// A bar for weights on their way to hosts, from blocks sent and in all; likewise.
std::function<bool(uint64_t, uint64_t)> show_sending();

}  // namespace sluice

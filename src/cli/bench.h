// `sluice bench`: what its parts share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"

namespace sluice {

struct BenchOptions : CommonOptions {
  std::string data, out;
  std::vector<std::string> tasks = {"mt_bench", "gsm8k", "humaneval"}, methods = {"ar", "specpipe"};
  std::vector<float> temps = {0.0f};
  int32_t limit = 20;
  int32_t turns = 0;        // at most so many of a conversation; 0: all
  int32_t concurrency = 1;  // conversations at a time
  bool overwrite = false;
};

// One conversation of the grid that is run.
struct BenchKey {
  std::string task, id, method;
  float temp = 0;
  auto operator<=>(const BenchKey&) const = default;
};

}  // namespace sluice

// `sluice bench`: what its parts share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench_prompts.h"
#include "session/options.h"

namespace sluice {

struct BenchOptions {
  SessionOptions session;
  std::string data, out;
  std::vector<std::string> tasks = {"code", "math", "chat"}, methods = {"ar", "specpipe"};
  std::vector<float> temps = {0.0f};
  int32_t limit = 20;
  int32_t turns = 0;  // at most so many of a conversation; 0: all
  // Conversations in flight; with `arrivals` the contexts that the KV cache has room for.
  std::vector<int32_t> concurrency = {1};
  double arrivals = 0;  // conversations a second; 0: the next one comes when one has ended
  uint64_t arrivals_seed = 0;
  std::string also;         // a task whose prompts come beside the others; empty: none
  double also_seconds = 0;  // one of them every so many seconds
  bool overwrite = false;

  // Whether conversations share an engine; else each has one of its own, after the other.
  bool together(int32_t concurrency_now) const { return concurrency_now > 1 || arrivals > 0 || !also.empty(); }
};

// One conversation of the grid that is run.
struct BenchKey {
  std::string task, id, method;
  float temp = 0;
  int32_t concurrency = 1;
  auto operator<=>(const BenchKey&) const = default;
};

// The same, and how it is held.
struct BenchPoint {
  const BenchPrompt* prompt;
  std::string method;
  float temp = 0;
  int32_t concurrency = 1;
  std::optional<double> arrival;  // seconds after the load's begin; none: when there is a place for it

  BenchKey key() const { return {prompt->task, prompt->id, method, temp, concurrency}; }
  std::string name() const { return prompt->task + " " + prompt->id; }
  // An error of it, with its name.
  Error in(const Error& error) const { return {error.kind, name() + ": " + error.message}; }
};

}  // namespace sluice

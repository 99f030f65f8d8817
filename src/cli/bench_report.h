// What `sluice bench` says of its results: speed-ups over plain decoding, and whether all methods gave the same tokens.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cli/bench_results.h"

namespace sluice {

class BenchReport {
 public:
  explicit BenchReport(size_t n_stages) : n_stages_(n_stages) {}

  // Adds the first `turns` turns of a conversation (0: all). Of a prompt's conversations the first is the reference
  // for the tokens of the others.
  void add(const BenchResults::Conversation& conversation, int32_t turns);
  size_t conversations() const { return n_conversations_; }

  // The rows of the table, a method and temperature each, with a column for each task.
  std::string table(const BenchOptions& options) const;
  nlohmann::json summary() const;
  // The first answer that differs from the reference, in words; empty if there is none.
  const std::string& difference() const { return difference_; }

 private:
  // All prompts of a task by one method at one temperature.
  struct Cell {
    double seconds = 0, steps = 0;
    int64_t tokens = 0;  // after the first of each answer
    int64_t drafted = 0, accepted = 0, flushes = 0;
    std::optional<double> joules = 0.0;  // none where a run does not say
  };

  void add_run(const BenchKey& key, const nlohmann::json& run);
  double speedup(const std::string& method, float temp, const std::string& task) const;
  std::string energy_line(const BenchOptions& options) const;
  std::string table_cell(const std::string& method, float temp, const std::string& task) const;

  size_t n_stages_, n_conversations_ = 0;
  std::map<std::tuple<std::string, float, std::string>, Cell> cells_;            // by method, temperature, task
  std::map<std::tuple<std::string, std::string, float, size_t>, nlohmann::json>  // by task, id, temperature, turn
      reference_;
  std::string difference_;
};

}  // namespace sluice

// What `sluice bench` says of its results: speed-ups over plain decoding, and whether all methods gave the same tokens.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cli/bench.h"
#include "cli/bench_results.h"
#include "cli/report.h"

namespace sluice {

class BenchReport {
 public:
  BenchReport(const BenchOptions& options, size_t n_stages) : options_(&options), n_stages_(n_stages) {}

  // Adds the turns of a conversation that are asked for. Of a prompt's conversations the first is the reference
  // for the tokens of the others.
  void add(const BenchResults::Conversation& conversation);
  size_t conversations() const { return n_conversations_; }

  // The rows of the table, a method, temperature and concurrency each, with a column for each task; and where
  // conversations were together, what the load as a whole made.
  std::string table() const;
  nlohmann::json summary() const;
  // The first answer that differs from the reference, in words; empty if there is none.
  const std::string& difference() const { return difference_; }
  // How often an answer left the reference, of 1,000 tokens up to there; none if nothing was compared.
  std::optional<double> forks_per_1000() const;
  // Of all runs; see the line of the table.
  const PaceKept& pace() const { return pace_; }
  // The tasks of the table's columns.
  static std::vector<std::string> columns(const BenchOptions& options);

 private:
  // Of all answers, for a load: seconds.
  struct Latencies {
    std::vector<double> first_token, between_tokens;  // from arrival; from token to token
    double begin = 0, end = 0;                        // the first arrival, the last token
    double elapsed = 0;                               // of loads before this one
    double tokens = 0;
    void begin_load();
    void add(const nlohmann::json& run);
    double seconds() const { return elapsed + end - begin; }
    double tokens_per_second() const { return seconds() > 0 ? tokens / seconds() : 0; }
  };

  // All prompts of a task by one method at one temperature and concurrency.
  struct Cell {
    double seconds = 0, steps = 0;
    int64_t tokens = 0;  // after the first of each answer
    int64_t drafted = 0, accepted = 0, flushes = 0;
    std::optional<double> joules = 0.0;           // none where a run does not say
    std::optional<Latencies> load = Latencies();  // likewise
  };
  using CellKey = std::tuple<std::string, float, std::string, int32_t>;  // method, temperature, task, concurrency

  void add_run(const BenchKey& key, const nlohmann::json& run);
  // Whether it is the same as the reference.
  bool compare(const BenchKey& key, const nlohmann::json& run);
  double speedup(const CellKey& key) const;
  std::string energy_line() const;
  std::string agreement_line() const;
  std::string load_table() const;
  std::string table_cell(const CellKey& key) const;

  const BenchOptions* options_;
  size_t n_stages_, n_conversations_ = 0;
  std::map<CellKey, Cell> cells_;
  std::map<std::tuple<std::string, std::string, float, size_t>, nlohmann::json>  // by task, id, temperature, turn
      reference_;
  // Of answers to the same: a conversation counts up to its first token that differs.
  int64_t n_compared_ = 0, n_forks_ = 0;
  std::string difference_;
  PaceKept pace_;
  uint64_t out_of_range_ = 0;  // numbers of states that f16 could not hold
  Exactness weakest_ = Exactness::kBitwise;
  // Of runs with edges by way of this process.
  struct Relay {
    size_t edges = 0;
    double runs = 0, tokens = 0, bytes = 0, seconds_per_step = 0;  // the last a sum
  } relay_;
};

}  // namespace sluice

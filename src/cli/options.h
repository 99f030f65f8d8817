// Options that mean the same in every command.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/wire.h"
#include "compute/stage_runner.h"

namespace sluice {

struct CommonOptions {
  std::string model;  // empty: the embedded default
  std::string method = "auto";
  std::vector<std::string> drafts;  // files, the smallest model first
  std::vector<std::string> heads;   // files, one of a kind
  std::vector<std::string> sources;
  std::string ngram_corpus;  // a text that n-grams know; empty: none
  int32_t stages = 1;
  std::vector<int32_t> cuts;
  int32_t width = 16, levels = 1, group = 1, depth = 6, children = 16, draft_rows = 0, draft_vocab = 0, tree_nodes = 0,
          budget = 24, lookahead = 0;
  double draft_p_min = 0.0;
  std::string fallback = "auto";
  std::vector<int32_t> branching = {1, 1, 3, 1, 1, 1, 1, 1};
  std::string executor = "threads";
  std::string profile;  // empty: `uniform` when simulated, else not paced
  std::string compute = "full";
  std::string memo;     // file that keeps what lazy runs computed; empty: none
  int32_t context = 0;  // 0: the model's, at most 8192
  std::string kv = "f16";
  int32_t max_tokens = 256;
  SamplingParams sampling;
  std::string verify = "match";
  std::string lossy = "none";
  bool replacement = false;
  double saguaro = 1.0;  // 0: auto
  int32_t saguaro_tokens = 0;
  bool raw = false;
  bool ignore_eos = false;
  int32_t threads = 0;  // a worker; 0: the machine's cores shared by the stages
  bool json = false;
  std::string trace;

  bool simulated() const { return executor == "virtual"; }
  bool same_tokens() const { return verify == "match" && lossy == "none"; }  // whatever the method
  KvType kv_type() const { return kv == "f32" ? KvType::kF32 : KvType::kF16; }
};

// Adds an option whose value is a list with commas. It takes one argument: what follows may be the prompt.
template <class T>
CLI::Option& add_list_option(CLI::App& command, const std::string& name, std::vector<T>& values,
                             const std::string& what) {
  return *command.add_option(name, values, what)->delimiter(',')->allow_extra_args(false);
}

// What --temp and --temps take.
CLI::Validator temperature();

// Adds -m, --model.
void add_model_option(CLI::App& command, CommonOptions& options);
// Adds what chooses and runs a method: --method to --threads.
void add_engine_options(CLI::App& command, CommonOptions& options);
// Adds what shapes the text: -n, --temp to --seed, --raw.
void add_generation_options(CLI::App& command, CommonOptions& options);

// What CLI11 can't see: combinations that make no sense.
Status check(const CommonOptions& options);

}  // namespace sluice

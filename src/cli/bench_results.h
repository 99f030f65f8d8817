// What `sluice bench` has done, kept in the file of --json so that an interrupted bench goes on where it was.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cli/bench.h"
#include "session/session.h"

namespace sluice {

// Everything that a run's tokens and figures depend on, by name; what is run (tasks, methods, temperatures, prompts) is
// no part of it, nor is what only saves time (the memo).
using BenchSettings = std::vector<std::pair<std::string, nlohmann::json>>;
BenchSettings bench_settings(const BenchOptions& options, const Session& session);

class BenchResults {
 public:
  struct Conversation {
    BenchKey key;
    std::vector<nlohmann::json> turns;  // objects of `run --json`, with id, task, temp, turn and prompt
  };

  // `path` may be empty: then nothing is read or written. Errors (kInput): the file is not one of `sluice bench`, or of
  // other settings (the first that differs is named), unless `overwrite`.
  static Result<BenchResults> open(const std::string& path, BenchSettings settings, bool overwrite);

  // The conversation, or null if it wasn't held.
  const Conversation* find(const BenchKey& key) const;
  // Takes the place of what was there of the same key.
  void put(Conversation conversation);
  bool empty() const { return conversations_.empty(); }

  // Writes the file: settings, runs and the fields of `rest`. A plain file is replaced as a whole, never seen half
  // written; anything else (a device, a link) is written only at the end, `last`.
  Status write(const nlohmann::json& selection, const nlohmann::json& rest, bool last) const;

 private:
  Status read(const std::string& text);
  Error not_ours(const std::string& why) const;

  std::string path_;
  bool replaceable_ = false;
  BenchSettings settings_;
  std::vector<Conversation> conversations_;  // in the order in which they were held
  std::map<BenchKey, size_t> index_;
};

}  // namespace sluice

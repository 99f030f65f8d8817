// The text that heads are trained on: what the target answered, as tokens, in files that only grow.
//
// A folder holds corpus.json (what made it) and shards, train-00000.tokens … and held-out-00000.tokens ….
// docs/formats.md describes them. A record that a killed run left unfinished at a shard's end is cut off when the
// folder is next opened for writing, and ignored by readers.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace sluice {

enum class Split : uint8_t { kTrain, kHeldOut };

// One conversation.
struct Example {
  uint64_t id = 0;  // the job that made it
  float temperature = 0;
  int32_t n_prompt = 0;       // tokens before the answer, chat template included
  std::vector<Token> tokens;  // prompt and answer; the token that ended the answer is the last, if one did
  int64_t n_answer() const { return static_cast<int64_t>(tokens.size()) - n_prompt; }
  bool operator==(const Example&) const = default;
};

// All of it in memory: four bytes a token.
struct Corpus {
  // Errors (kInput): not a corpus, or a damaged record other than an unfinished last one; they name the file.
  static Result<Corpus> open(const std::string& folder);
  // Several, one after another. REQUIRES: at least one.
  static Result<Corpus> open_all(const std::vector<std::string>& folders);

  nlohmann::json settings;
  std::vector<Example> train, held_out;  // in the order of writing
};

// The examples' answer tokens.
int64_t count_answer_tokens(const std::vector<Example>& examples);

class CorpusWriter {
 public:
  // Makes the folder, or goes on in it. Errors (kInput): it was made with other `settings`, or is none of ours.
  static Result<CorpusWriter> open(const std::string& folder, const nlohmann::json& settings);

  // The record is on its way to the disk when this returns; an error says that it isn't (full?) and what was before
  // remains.
  Status append(Split split, const Example& example);

  bool holds(uint64_t id) const { return ids_.contains(id); }
  int64_t answer_tokens() const { return answer_tokens_; }  // of both splits
  size_t examples() const { return ids_.size(); }

 private:
  struct Shard {
    std::string path;
    std::ofstream file;
    uint64_t bytes = 0;
    int32_t number = 0;
  };
  Status begin_shard(Split split, int32_t number);
  Status resume();

  std::string folder_;
  Shard shards_[2];  // the last of each split
  std::unordered_set<uint64_t> ids_;
  int64_t answer_tokens_ = 0;
};

}  // namespace sluice

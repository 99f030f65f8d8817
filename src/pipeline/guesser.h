// A draft model's or a head's ending: what it holds likely after each node.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "pipeline/ending.h"
#include "pipeline/memo.h"
#include "source/guess.h"

namespace sluice {

class Guesser final : public Ending {
 public:
  struct Options {
    int32_t n_logits = 0;
    int32_t candidates = 0;  // of a row at most, of the first `guessable` tokens
    int32_t guessable = 0;
    std::vector<Token> vocabulary = {};  // the token of each row of logits, ascending; empty: row i is token i
  };
  // memo: of what is computed lazily; else empty.
  Guesser(Options options, std::shared_ptr<Memo> memo) : options_(std::move(options)), memo_(std::move(memo)) {}

  void enter(const Batch& batch) override;
  std::vector<bool> hopeful(std::span<const Row> rows) const override { return std::vector<bool>(rows.size(), true); }
  // Of every row that is no prompt row.
  int32_t conclude(const Batch& batch, Computation& computation, Outcome& outcome) override;

 private:
  std::vector<TopLogits> tops(const Batch& batch, std::span<const size_t> rows, Computation& computation);
  TopLogits top(std::span<const float> logits) const;
  std::vector<Candidate> candidates(const TopLogits& top, SequenceId sequence, int32_t position) const;

  Options options_;
  std::shared_ptr<Memo> memo_;
  std::unordered_map<SequenceId, SamplingParams> sampling_;
  std::vector<float> logits_;
};

}  // namespace sluice

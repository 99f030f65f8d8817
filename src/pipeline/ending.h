// What the last stage of a model makes of a batch: a judge of the target's, a guesser of a draft model's or a head's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "pipeline/computation.h"
#include "pipeline/memo.h"
#include "verify/constraint.h"
#include "wire/batch.h"
#include "wire/report.h"

namespace sluice {

class Ending {
 public:
  virtual ~Ending() = default;

  // Batches in FIFO order, with all their rows.
  virtual void enter(const Batch& batch) = 0;

  // Which of a batch's rows may be of use, now that all batches before it are known: [rows].
  virtual std::vector<bool> hopeful(std::span<const Row> rows) const = 0;

  // Adds to `outcome` what comes of a batch, which `computation` has just run. Gives the number of rows whose logits
  // were needed.
  virtual int32_t conclude(const Batch& batch, Computation& computation, Outcome& outcome) = 0;

  // Since it was last asked.
  Lookups take_lookups() { return std::exchange(lookups_, {}); }

 protected:
  Lookups lookups_;
};

// The target's: the verdicts on a batch. constrain: the answers that have a grammar. memo: of what is computed lazily;
// else empty.
std::unique_ptr<Ending> make_judge(int32_t n_logits, Constrain constrain, std::shared_ptr<Memo> memo);

// A draft model's or a head's: what it holds likely after each node.
struct GuesserOptions {
  int32_t n_logits = 0;
  int32_t candidates = 0;  // of a row at most, of the first `guessable` tokens
  int32_t guessable = 0;
  std::vector<Token> vocabulary = {};  // the token of each row of logits, ascending; empty: row i is token i
};
std::unique_ptr<Ending> make_guesser(GuesserOptions options, std::shared_ptr<Memo> memo);

}  // namespace sluice

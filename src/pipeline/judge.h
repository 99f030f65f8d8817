// The target's ending: the verdicts on a batch.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "pipeline/ending.h"
#include "pipeline/memo.h"
#include "verify/verifier.h"

namespace sluice {

class Judge final : public Ending {
 public:
  // memo: of what is computed lazily; else empty.
  Judge(int32_t n_logits, std::shared_ptr<Memo> memo)
      : n_logits_(static_cast<size_t>(n_logits)), memo_(std::move(memo)) {}

  void enter(const Batch& batch) override;
  // What hangs from another branch than the verified one is not.
  std::vector<bool> hopeful(std::span<const Row> rows) const override;
  // Round by round down the accepted paths: of each sequence at most one row is alive at a time.
  int32_t conclude(const Batch& batch, Computation& computation, Outcome& outcome) override;

 private:
  // The rows of a batch whose logits are there, in their order.
  struct Known {
    std::vector<size_t> rows;
    std::vector<float> logits;  // [rows, n_logits]
  };
  std::vector<Accepted> accept(const Batch& batch, std::span<const size_t> alive, Computation& computation);
  void know(const Batch& batch, std::vector<size_t> rows, Computation& computation);
  std::span<const float> logits_of(size_t row) const;

  size_t n_logits_;
  std::shared_ptr<Memo> memo_;
  Verifier verifier_;
  Known known_;
};

}  // namespace sluice

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "pipeline/ending.h"
#include "verify/verifier.h"

namespace sluice {

namespace {

constexpr size_t kHeadRows = 4;  // for so many the output matrix is read in hardly more time than for one

// The rows, and of each the first child in the batch, which is the likeliest, and of that the first child, in turn: as
// many as the head takes at once.
std::vector<size_t> foreseen(std::span<const Row> rows, std::vector<size_t> found) {
  const size_t most = (found.size() + kHeadRows - 1) / kHeadRows * kHeadRows;
  for (size_t at = 0; at < found.size() && found.size() < most; ++at) {
    const Row& parent = rows[found[at]];
    for (size_t i = found[at] + 1; i < rows.size(); ++i)
      if (rows[i].sequence == parent.sequence && rows[i].parent == parent.cell) {
        found.push_back(i);
        break;
      }
  }
  return found;
}

// What was drawn for a row, or entered below it; none if nothing was said. The last that was said says all.
const Draws* draws_of(const Batch& batch, size_t i) {
  const auto said = std::find_if(batch.draws.rbegin(), batch.draws.rend(),
                                 [&](const Draws& draws) { return draws.row == batch.rows[i].index; });
  return said == batch.draws.rend() ? nullptr : &*said;
}

class Judge final : public Ending {
 public:
  Judge(int32_t n_logits, Constrain constrain, std::shared_ptr<Memo> memo)
      : n_logits_(static_cast<size_t>(n_logits)),
        memo_(std::move(memo)),
        verifier_(choose_by_noise, std::move(constrain)) {}

  void enter(const Batch& batch) override {
    for (const PathUpdate& update : batch.updates) verifier_.apply(update);
    for (const Row& row : batch.rows)
      if (row.kind == Row::Kind::kPrompt) verifier_.enter_prompt(row);
  }

  // What hangs from another branch than the verified one is not.
  std::vector<bool> hopeful(std::span<const Row> rows) const override {
    std::vector<bool> hopeful(rows.size());
    std::set<std::pair<SequenceId, Cell>> cells;
    for (size_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows[i];
      hopeful[i] = row.kind == Row::Kind::kPrompt || !verifier_.alive({&row, 1}).empty() ||
                   cells.contains({row.sequence, row.parent});
      if (hopeful[i]) cells.emplace(row.sequence, row.cell);
    }
    return hopeful;
  }

  // Round by round down the accepted paths: of each sequence at most one row is alive at a time.
  int32_t conclude(const Batch& batch, Computation& computation, Outcome& outcome) override {
    known_.rows.clear();
    int32_t judged = 0;
    for (auto alive = verifier_.alive(batch.rows); !alive.empty(); alive = verifier_.alive(batch.rows)) {
      for (Accepted& one : accept(batch, alive, computation)) outcome.accepted.push_back(std::move(one));
      judged += static_cast<int32_t>(alive.size());
    }
    return judged;
  }

 private:
  // The rows of a batch whose logits are there, in their order.
  struct Known {
    std::vector<size_t> rows;
    std::vector<float> logits;  // [rows, n_logits]
  };

  // The verdicts on the rows of a round, from the memo where the target's own token after them is there.
  std::vector<Accepted> accept(const Batch& batch, std::span<const size_t> alive, Computation& computation) {
    std::vector<Accepted> verdicts(alive.size());
    std::vector<std::optional<PathKey>> keys(alive.size());
    std::vector<size_t> open, open_rows;  // places in `alive` and in the batch
    for (size_t i = 0; i < alive.size(); ++i) {
      const Row& row = batch.rows[alive[i]];
      const SamplingParams& sampling = verifier_.sampling(row.sequence);
      const bool drawn_alone = draws_of(batch, alive[i]) == nullptr && sampling.top_logprobs == 0;
      if (const auto path = computation.key(row); path && drawn_alone) keys[i] = path->with(sampling);
      const Draw* draw = keys[i] ? memo_->find_draw(*keys[i]) : nullptr;
      lookups_.asked += keys[i].has_value();
      lookups_.missed += keys[i] && draw == nullptr;
      if (draw != nullptr) {
        verdicts[i] = verifier_.accept(row, *draw);
      } else {
        open.push_back(i);
        open_rows.push_back(alive[i]);
      }
    }
    if (open.empty()) return verdicts;
    know(batch, std::move(open_rows), computation);
    std::vector<Verifier::Alive> rows;
    for (const size_t i : open) rows.push_back({batch.rows[alive[i]], logits_of(alive[i]), draws_of(batch, alive[i])});
    std::vector<Accepted> drawn = verifier_.accept(rows, computation.spread());
    for (size_t i = 0; i < open.size(); ++i) {
      if (const auto& key = keys[open[i]]; key && !drawn[i].form_failed)
        memo_->keep(*key, Draw{drawn[i].next, drawn[i].logprob});
      verdicts[open[i]] = std::move(drawn[i]);
    }
    return verdicts;
  }

  // Computes the logits of the rows that are not known, and of those that the paths may come to next, unless what is
  // computed is to be as little as possible.
  void know(const Batch& batch, std::vector<size_t> rows, Computation& computation) {
    std::erase_if(rows,
                  [&](size_t i) { return std::find(known_.rows.begin(), known_.rows.end(), i) != known_.rows.end(); });
    if (rows.empty()) return;
    if (memo_ == nullptr) rows = foreseen(batch.rows, std::move(rows));
    const size_t before = known_.rows.size() * n_logits_;
    known_.rows.insert(known_.rows.end(), rows.begin(), rows.end());
    known_.logits.resize(known_.rows.size() * n_logits_);
    computation.logits(batch, rows, std::span(known_.logits).subspan(before));
  }

  std::span<const float> logits_of(size_t row) const {
    const auto place =
        static_cast<size_t>(std::find(known_.rows.begin(), known_.rows.end(), row) - known_.rows.begin());
    return std::span(known_.logits).subspan(place * n_logits_, n_logits_);
  }

  size_t n_logits_;
  std::shared_ptr<Memo> memo_;
  Verifier verifier_;
  Known known_;
};

}  // namespace

std::unique_ptr<Ending> make_judge(int32_t n_logits, Constrain constrain, std::shared_ptr<Memo> memo) {
  return std::make_unique<Judge>(n_logits, std::move(constrain), std::move(memo));
}

}  // namespace sluice

// The last worker's verification: which rows of a batch are on the path, and the target's own next token after each.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/chance.h"
#include "base/ids.h"
#include "verify/sampler.h"
#include "wire/batch.h"
#include "wire/report.h"

namespace sluice {

// Rule `match`: the target draws its own token after the path, and a row that holds this token as a child of the path's
// end prolongs the path. So for each sequence there is one path, known to the last worker before anyone else, and all
// that enters a batch is judged by what came in band before it.
//
// The worker's loop over a batch, in FIFO order of batches:
//   for (const auto& update : batch.updates) verifier.apply(update);
//   for (const auto& row : batch.rows) if (row.kind == Row::Kind::kPrompt) verifier.enter_prompt(row);
//   for (auto alive = verifier.alive(batch.rows); !alive.empty(); alive = verifier.alive(batch.rows))
//     for (const size_t i : alive) outcome.accepted.push_back(verifier.accept(batch.rows[i], logits of row i));
// Each round of it goes one level down the accepted path of every sequence. A run of the head serves them all, and the
// rows that their paths may come to next.
//
// Invariants: a row's outcome depends on its own sequence alone. A row is alive at most once, since accepting it moves
// the path's end. A row of a dead branch is simply never alive: its cell may be given out again, but a FIFO pipeline
// brings it here before the cell's next holder.
//
// Thread safety: none. Pure: no clock, no state but its own.
class Verifier {
 public:
  // choose: how rule `reject` chooses. constrain: of sequences whose sampling has a grammar; without it all may come.
  explicit Verifier(Choose choose = choose_by_noise, Constrain constrain = {})
      : choose_(std::move(choose)), constrain_(std::move(constrain)) {}

  // Open: an empty path. Fork: one that begins as another's does; whatever follows is taken. Truncate: the path's first
  // `length` tokens stay; whatever follows them is taken. Close: forgets it. Commit says nothing new here.
  // REQUIRES: Open and Fork of a sequence that is not open, the others, and what is forked, of one that is; a length no
  // longer than the path.
  void apply(const PathUpdate& update);

  // A prompt row prolongs the path, and whatever follows it is taken.
  // REQUIRES: row.kind == kPrompt; its sequence is open; it follows the path's end in position and parent.
  void enter_prompt(const Row& row);

  // The indices into `rows` of those that prolong their paths as they stand now, ascending, at most one a sequence.
  // REQUIRES: the sequences of the rows are open.
  std::vector<size_t> alive(std::span<const Row> rows) const;

  // Prolongs the path by an alive row and draws the token after it. logits: [n_vocab] of this row. Rule `reject`: from
  // `draws`, the row's drawn children, if there are any. Lossy rules: choosing among them, the row's children.
  // REQUIRES: the row is alive.
  Accepted accept(const Row& row, std::span<const float> logits, const Draws* draws = nullptr) {
    return accept({{row, logits, draws}}).front();
  }

  // The same of alive rows of several sequences, on the threads of `spread`: of rows if there are several, else of the
  // parts of the vocabulary.
  struct Alive {
    Row row;
    std::span<const float> logits;
    const Draws* draws = nullptr;
  };
  std::vector<Accepted> accept(const std::vector<Alive>& alive, const Spread& spread = {});

  // The same with a draw that is known already.
  Accepted accept(const Row& row, const Draw& draw);

  // How the sequence's tokens are drawn. REQUIRES: it is open.
  const SamplingParams& sampling(SequenceId sequence) const { return at(sequence).sampling; }

  // The tokens of a path as verified so far, prompt included.
  // REQUIRES: the sequence is open.
  std::span<const Token> path(SequenceId sequence) const;

 private:
  struct Path {
    SamplingParams sampling;
    std::vector<Token> tokens;                    // by position
    std::vector<Cell> cells;                      // of tokens
    std::unique_ptr<Constraint> constraint = {};  // where its answer stands, if that is limited
    Token expected = kNoToken;  // the target's own token after the path; kNoToken: whatever comes is taken

    Cell tail() const { return cells.empty() ? Cell() : cells.back(); }
    bool continued_by(const Row& row) const;
    void append(Token token, Cell cell);
  };

  Path path_of(const SamplingParams& sampling, const Path& from, int32_t length) const;
  Path& enter(const Row& row);
  Accepted accept(const Alive& alive, Sampler& sampler);
  Draw draw(const Path& path, const Alive& alive, Sampler& sampler, std::vector<BendOdds>& odds) const;
  Path& at(SequenceId sequence);
  const Path& at(SequenceId sequence) const;

  std::unordered_map<SequenceId, Path> paths_;
  Choose choose_;
  Constrain constrain_;
  std::vector<Sampler> samplers_ = std::vector<Sampler>(1);  // by thread
};

}  // namespace sluice

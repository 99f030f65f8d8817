#include "verify/verifier.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "verify/lossy.h"
#include "verify/reject.h"

namespace sluice {

namespace {

auto& of_sequence(auto& paths, SequenceId sequence) {
  const auto found = paths.find(sequence);
  SLUICE_CHECK(found != paths.end(), "the sequence is open");
  return found->second;
}

Accepted verdict(const Row& row, const Draw& draw) {
  return {
      .sequence = row.sequence, .cell = row.cell, .next = draw.token, .logprob = draw.logprob, .odds = {}, .top = {}};
}

}  // namespace

bool Verifier::Path::continued_by(const Row& row) const {
  const bool follows = row.parent == tail() && row.position == static_cast<int32_t>(tokens.size());
  if (row.kind != Row::Kind::kNode || !follows) return false;
  return expected == kNoToken || row.token == expected;
}

void Verifier::Path::append(Token token, Cell cell) {
  if (constraint != nullptr && std::ssize(tokens) >= sampling.answer_from) constraint->accept(token);
  tokens.push_back(token);
  cells.push_back(cell);
}

// The first `length` tokens of a path, after which whatever comes is taken.
Verifier::Path Verifier::path_of(const SamplingParams& sampling, const Path& from, int32_t length) const {
  SLUICE_CHECK(length >= 0 && static_cast<size_t>(length) <= from.tokens.size(),
               "a path is cut to a length that it has");
  Path path{.sampling = sampling, .tokens = {}, .cells = {}};
  if (constrain_ && !sampling.grammar.empty()) path.constraint = constrain_(sampling.grammar);
  for (size_t i = 0; i < static_cast<size_t>(length); ++i) path.append(from.tokens[i], from.cells[i]);
  return path;
}

Verifier::Path& Verifier::at(SequenceId sequence) { return of_sequence(paths_, sequence); }
const Verifier::Path& Verifier::at(SequenceId sequence) const { return of_sequence(paths_, sequence); }

void Verifier::apply(const PathUpdate& update) {
  if (const auto* open = std::get_if<Open>(&update)) {
    const bool fresh = paths_.try_emplace(open->sequence, path_of(open->sampling, {}, 0)).second;
    SLUICE_CHECK(fresh, "a sequence is opened once");
  } else if (const auto* fork = std::get_if<Fork>(&update)) {
    Path path = path_of(fork->sampling, at(fork->from), fork->length);
    const bool fresh = paths_.try_emplace(fork->sequence, std::move(path)).second;
    SLUICE_CHECK(fresh, "a sequence is opened once");
  } else if (const auto* cut = std::get_if<Truncate>(&update)) {
    Path& path = at(cut->sequence);
    path = path_of(cut->sampling, path, cut->length);
  } else if (const auto* close = std::get_if<Close>(&update)) {
    const size_t closed = paths_.erase(close->sequence);
    SLUICE_CHECK(closed == 1, "the sequence is open");
  }
}

void Verifier::enter_prompt(const Row& row) {
  SLUICE_CHECK(row.kind == Row::Kind::kPrompt, "only prompt rows are on the path unverified");
  Path& path = at(row.sequence);
  SLUICE_CHECK(row.parent == path.tail(), "a prompt row prolongs the path");
  SLUICE_CHECK(row.position == std::ssize(path.tokens), "a row follows its parent in position");
  path.append(row.token, row.cell);
  path.expected = kNoToken;
}

std::vector<size_t> Verifier::alive(std::span<const Row> rows) const {
  std::vector<size_t> indices;
  const auto has_one = [&](SequenceId sequence) {
    return std::any_of(indices.begin(), indices.end(), [&](size_t i) { return rows[i].sequence == sequence; });
  };
  for (size_t i = 0; i < rows.size(); ++i)
    if (at(rows[i].sequence).continued_by(rows[i]) && !has_one(rows[i].sequence)) indices.push_back(i);
  return indices;
}

// The token after the path, which ends with the row.
Draw Verifier::draw(const Path& path, const Alive& alive, Sampler& sampler, std::vector<BendOdds>& odds) const {
  const auto& [row, logits, draws] = alive;
  const Rule rule = draws == nullptr ? Rule::kMatch : path.sampling.rule;
  if (rule == Rule::kReject) {
    const auto p = sampler.probabilities(path.sampling, logits, path.tokens, path.constraint.get());
    const Token token = draw_by_rejection(p, *draws, path.sampling, row.position + 1, choose_);
    if (draws->bend.odds) odds = bend_odds(p, *draws);
    return {token, sampler.logprob(logits, token)};
  }
  if (is_lossy(rule)) {
    const auto weights = sampler.weights(path.sampling, logits, path.tokens, path.constraint.get());
    if (const auto child = choose_child(weights, *draws, path.sampling))
      return {*child, sampler.logprob(logits, *child)};
  }
  return sampler.draw(path.sampling, logits, path.tokens, row.position + 1, path.constraint.get());
}

// The path that an alive row prolongs.
Verifier::Path& Verifier::enter(const Row& row) {
  Path& path = at(row.sequence);
  SLUICE_CHECK(path.continued_by(row), "only an alive row is accepted");
  path.append(row.token, row.cell);
  return path;
}

Accepted Verifier::accept(const Alive& alive, Sampler& sampler) {
  Path& path = enter(alive.row);
  std::vector<BendOdds> odds;
  const Draw drawn = draw(path, alive, sampler, odds);
  path.expected = drawn.token;
  Accepted accepted = verdict(alive.row, drawn);
  accepted.odds = std::move(odds);
  accepted.form_failed = path.constraint != nullptr && path.constraint->failed();
  if (path.sampling.top_logprobs > 0) accepted.top = sampler.top_logprobs(alive.logits, path.sampling.top_logprobs);
  return accepted;
}

std::vector<Accepted> Verifier::accept(const std::vector<Alive>& alive, const Spread& spread) {
  std::vector<Accepted> accepted(alive.size());
  if (alive.size() == 1) {
    samplers_.front().spread(spread);
    accepted.front() = accept(alive.front(), samplers_.front());
    samplers_.front().spread({});
  } else {
    samplers_.resize(std::max(samplers_.size(), spread.threads()));
    spread.each(alive.size(), [&](size_t i, size_t thread) { accepted[i] = accept(alive[i], samplers_[thread]); });
  }
  return accepted;
}

Accepted Verifier::accept(const Row& row, const Draw& draw) {
  enter(row).expected = draw.token;
  return verdict(row, draw);
}

std::span<const Token> Verifier::path(SequenceId sequence) const { return at(sequence).tokens; }

}  // namespace sluice

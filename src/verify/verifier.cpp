#include "verify/verifier.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "verify/lossy.h"
#include "verify/reject.h"

namespace sluice {

bool Verifier::Path::continued_by(const Row& row) const {
  if (row.kind != Row::Kind::kNode || row.parent != tail()) return false;
  return expected == kNoToken || row.token == expected;
}

void Verifier::Path::append(const Row& row) {
  SLUICE_CHECK(row.position == static_cast<int32_t>(tokens.size()), "a row follows its parent in position");
  tokens.push_back(row.token);
  cells.push_back(row.cell);
}

Verifier::Path& Verifier::at(SequenceId sequence) { return const_cast<Path&>(std::as_const(*this).at(sequence)); }

const Verifier::Path& Verifier::at(SequenceId sequence) const {
  const auto found = paths_.find(sequence);
  SLUICE_CHECK(found != paths_.end(), "the sequence is open");
  return found->second;
}

void Verifier::apply(const PathUpdate& update) {
  if (const auto* open = std::get_if<Open>(&update)) {
    const bool fresh = paths_.try_emplace(open->sequence, Path{open->sampling, {}, {}, kNoToken}).second;
    SLUICE_CHECK(fresh, "a sequence is opened once");
  } else if (const auto* cut = std::get_if<Truncate>(&update)) {
    Path& path = at(cut->sequence);
    SLUICE_CHECK(cut->length >= 0 && static_cast<size_t>(cut->length) <= path.tokens.size(),
                 "a path is cut to a length that it has");
    path.tokens.resize(cut->length);
    path.cells.resize(cut->length);
    path.expected = kNoToken;
    path.sampling = cut->sampling;
  } else if (const auto* close = std::get_if<Close>(&update)) {
    const size_t closed = paths_.erase(close->sequence);
    SLUICE_CHECK(closed == 1, "the sequence is open");
  }
}

void Verifier::enter_prompt(const Row& row) {
  SLUICE_CHECK(row.kind == Row::Kind::kPrompt, "only prompt rows are on the path unverified");
  Path& path = at(row.sequence);
  SLUICE_CHECK(row.parent == path.tail(), "a prompt row prolongs the path");
  path.append(row);
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

std::optional<Token> Verifier::lossy_choice(const Path& path, std::span<const float> logits, const Draws* children) {
  if (!is_lossy(path.sampling.rule) || children == nullptr) return std::nullopt;
  return choose_child(sampler_.weights(path.sampling, logits, path.tokens), *children, path.sampling);
}

Accepted Verifier::accept(const Row& row, std::span<const float> logits, const Draws* draws) {
  Path& path = at(row.sequence);
  SLUICE_CHECK(path.continued_by(row), "only an alive row is accepted");
  path.tokens.push_back(row.token);
  Draw draw;
  std::vector<SaguaroOdds> odds;
  if (path.sampling.rule == Rule::kReject && draws != nullptr) {
    const TargetDistribution p = sampler_.distribution(path.sampling, logits, path.tokens);
    draw.token = draw_by_rejection(p, *draws, path.sampling, row.position + 1, choose_);
    if (draws->saguaro.odds) odds = saguaro_odds(p, *draws);
    draw.logprob = static_cast<float>(logits[static_cast<size_t>(draw.token)] - log_sum_exp(logits));
  } else if (const auto child = lossy_choice(path, logits, draws)) {
    draw.token = *child;
    draw.logprob = static_cast<float>(logits[static_cast<size_t>(draw.token)] - log_sum_exp(logits));
  } else {
    draw = sampler_.draw(path.sampling, logits, path.tokens, row.position + 1);
  }
  path.tokens.pop_back();
  Accepted accepted = accept(row, draw);
  accepted.odds = std::move(odds);
  return accepted;
}

Accepted Verifier::accept(const Row& row, const Draw& draw) {
  Path& path = at(row.sequence);
  SLUICE_CHECK(path.continued_by(row), "only an alive row is accepted");
  path.append(row);
  path.expected = draw.token;
  return {.sequence = row.sequence, .cell = row.cell, .next = draw.token, .logprob = draw.logprob, .odds = {}};
}

std::span<const Token> Verifier::path(SequenceId sequence) const { return at(sequence).tokens; }

}  // namespace sluice

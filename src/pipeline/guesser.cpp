#include "pipeline/guesser.h"

#include <algorithm>
#include <variant>

#include "source/draw.h"

namespace sluice {

void Guesser::enter(const Batch& batch) {
  for (const PathUpdate& update : batch.updates) {
    if (const auto* open = std::get_if<Open>(&update)) {
      sampling_[open->sequence] = open->sampling;
    } else if (const auto* fork = std::get_if<Fork>(&update)) {
      sampling_[fork->sequence] = fork->sampling;
    } else if (const auto* cut = std::get_if<Truncate>(&update)) {
      sampling_[cut->sequence] = cut->sampling;
    } else if (const auto* close = std::get_if<Close>(&update)) {
      sampling_.erase(close->sequence);
    }
  }
}

int32_t Guesser::conclude(const Batch& batch, Computation& computation, Outcome& outcome) {
  std::vector<size_t> nodes;
  for (size_t i = 0; i < batch.rows.size(); ++i)
    if (batch.rows[i].kind == Row::Kind::kNode) nodes.push_back(i);
  const std::vector<TopLogits> top = tops(batch, nodes, computation);
  for (size_t i = 0; i < top.size(); ++i) {
    const auto n = static_cast<size_t>(computation.guesses());
    const Row& row = batch.rows[nodes[i / n]];
    const auto depth = static_cast<int32_t>(i % n);
    outcome.drafted.push_back({row.index, depth, candidates(top[i], row.sequence, row.position + 1 + depth)});
  }
  return static_cast<int32_t>(top.size());
}

// [rows, guesses]
std::vector<TopLogits> Guesser::tops(const Batch& batch, std::span<const size_t> rows, Computation& computation) {
  const auto n = static_cast<size_t>(computation.guesses()), v = static_cast<size_t>(options_.n_logits);
  // Another target may have more or fewer tokens that can be guessed.
  const auto key = [&](size_t row) {
    const auto path = computation.key(batch.rows[row]);
    return path ? std::optional(path->with(static_cast<uint64_t>(options_.guessable))) : std::nullopt;
  };
  std::vector<TopLogits> tops(rows.size() * n);
  std::vector<size_t> unknown, places;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto path = key(rows[i]);
    const TopLogits* known = path ? memo_->find_top(*path) : nullptr;
    lookups_.asked += path.has_value();
    lookups_.missed += path && known == nullptr;
    if (known != nullptr) {
      tops[i] = *known;
    } else {
      unknown.push_back(rows[i]);
      places.push_back(i * n);
    }
  }
  if (unknown.empty()) return tops;
  logits_.resize(unknown.size() * n * v);
  computation.logits(batch, unknown, logits_);
  for (size_t i = 0; i < unknown.size(); ++i) {
    for (size_t depth = 0; depth < n; ++depth)
      tops[places[i] + depth] = top(std::span(logits_).subspan((i * n + depth) * v, v));
    if (const auto path = key(unknown[i])) memo_->keep(*path, tops[places[i]]);
  }
  return tops;
}

// A head over some of the tokens has a row for each, and the rows rise as the tokens do.
TopLogits Guesser::top(std::span<const float> logits) const {
  const auto& tokens = options_.vocabulary;
  if (tokens.empty()) return top_logits(logits, options_.guessable);
  const auto end = std::lower_bound(tokens.begin(), tokens.end(), options_.guessable);
  TopLogits top = top_logits(logits, static_cast<int32_t>(end - tokens.begin()));
  for (auto& entry : top.entries) entry.token = tokens[static_cast<size_t>(entry.token)];
  return top;
}

std::vector<Candidate> Guesser::candidates(const TopLogits& top, SequenceId sequence, int32_t position) const {
  const SamplingParams& sampling = sampling_.at(sequence);
  return sampling.rule == Rule::kReject ? draft_distribution(top, sampling)
                                        : guess(top, sampling, position, options_.candidates);
}

}  // namespace sluice

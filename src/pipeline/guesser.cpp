#include <algorithm>
#include <unordered_map>
#include <variant>

#include "pipeline/ending.h"
#include "source/draw.h"
#include "source/guess.h"

namespace sluice {

namespace {

class Guesser final : public Ending {
 public:
  Guesser(GuesserOptions options, std::shared_ptr<Memo> memo) : options_(std::move(options)), memo_(std::move(memo)) {}

  void enter(const Batch& batch) override {
    for (const PathUpdate& update : batch.updates) {
      if (const SamplingParams* sampling = sampling_of(update)) sampling_[sequence_of(update)] = *sampling;
      if (std::holds_alternative<Close>(update)) sampling_.erase(sequence_of(update));
    }
  }

  std::vector<bool> hopeful(std::span<const Row> rows) const override { return std::vector<bool>(rows.size(), true); }
  // Of every row that is no prompt row.
  int32_t conclude(const Batch& batch, Computation& computation, Outcome& outcome) override {
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

 private:
  // [rows, guesses]
  std::vector<TopLogits> tops(const Batch& batch, std::span<const size_t> rows, Computation& computation) {
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
  TopLogits top(std::span<const float> logits) const {
    const auto& tokens = options_.vocabulary;
    if (tokens.empty()) return top_logits(logits, options_.guessable);
    const auto end = std::lower_bound(tokens.begin(), tokens.end(), options_.guessable);
    TopLogits top = top_logits(logits, static_cast<int32_t>(end - tokens.begin()));
    for (auto& entry : top.entries) entry.token = tokens[static_cast<size_t>(entry.token)];
    return top;
  }

  std::vector<Candidate> candidates(const TopLogits& top, SequenceId sequence, int32_t position) const {
    const SamplingParams& sampling = sampling_.at(sequence);
    return sampling.rule == Rule::kReject ? draft_distribution(top, sampling)
                                          : guess(top, sampling, position, options_.candidates);
  }

  GuesserOptions options_;
  std::shared_ptr<Memo> memo_;
  std::unordered_map<SequenceId, SamplingParams> sampling_;
  std::vector<float> logits_;
};

}  // namespace

std::unique_ptr<Ending> make_guesser(GuesserOptions options, std::shared_ptr<Memo> memo) {
  return std::make_unique<Guesser>(std::move(options), std::move(memo));
}

}  // namespace sluice

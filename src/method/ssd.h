#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "method/method.h"
#include "theory/fan_out.h"

namespace sluice {

// Speculative speculative decoding, SAGUARO: while the target verifies a chain of K tokens, the draft model drafts the
// next chain for the likeliest outcomes (k, t*): k tokens accepted, then the target's own token t*. If the outcome that
// comes was foreseen, the next chain enters at once; if not, the draft model drafts it then. Among many requests that
// would make most batches wait for somebody's miss, so that n-grams, which answer at once, draft it instead, and the
// draft model looks at their chain while that is verified.
//
// The speculation cache is a part of the tree: after the k-th token of the chain hang, beside the chain's own next
// token, the F_k likeliest others, each with a chain of its own; all grow by a token in one draft batch. The fan-out F
// follows from the acceptance and the misses seen so far (fan_out.h).
class Ssd final : public Method {
 public:
  explicit Ssd(const MethodOptions& options)
      : length_(options.depth),
        budget_(options.budget),
        fallback_(options.fallback),
        bend_({.c = options.saguaro, .f = options.saguaro_tokens, .odds = options.saguaro == 0.0}),
        odds_(kBends.size()) {
    if (bend_.odds) bend_.c = 1.0;
  }
  // F: as many as will be drafted for behind the token. C: as asked for, or what has promised most tokens a second.
  Bend bend(const TokenTree& tree, NodeId node) const override;
  void learn(std::span<const BendOdds> odds) override;
  // rounds_by_k, and hit_rate_by_k of them: the share of rounds whose outcome had been drafted for. saguaro_c, where C
  // is chosen: the last one.
  std::map<std::string, std::vector<double>> figures() const override;
  Proposal propose(Speculation& speculation, const Idle& idle) override;
  void drafted(Speculation& speculation, size_t source, NodeId node, std::vector<Candidate> candidates,
               std::shared_ptr<const Draws> draws = {}) override;

  // Rounds by what the verification came to, k accepted: how often, and how often it had been foreseen.
  struct Outcomes {
    int64_t rounds = 0, hits = 0;
  };
  const std::vector<Outcomes>& outcomes() const { return outcomes_; }

 private:
  Proposal begin_round(Speculation& speculation, const Idle& idle);
  Proposal draft_outcomes(Speculation& speculation);
  bool falls_back_on_ngrams(const Speculation& speculation, const Idle& idle) const;
  size_t drafter(const Speculation& speculation, const Idle& idle) const;
  void note_outcome(const TokenTree& tree);
  std::vector<int> fan_out() const;
  bool foreseen(NodeId node) const { return std::find(foreseen_.begin(), foreseen_.end(), node) != foreseen_.end(); }
  double best_c(const Speculation& speculation, const Idle& idle) const;

  int32_t length_;  // K
  int32_t budget_;  // B: outcomes foreseen
  Fallback fallback_;
  Bend bend_;
  std::vector<BendOdds> odds_;  // by kBends: sums over n_odds_ drawn tokens; of hit weighted by rejection
  int64_t n_odds_ = 0;

  // The round under way: the chain that is being verified, from the root, and the outcomes that are drafted for.
  std::vector<NodeId> chain_;
  int32_t begin_ = 0;  // the position of its root
  std::vector<NodeId> foreseen_;
  std::set<NodeId> by_ngrams_;                             // of whose children only n-grams have spoken
  bool chain_by_ngrams_ = false;                           // of the round
  int64_t ngram_rounds_ = 0, ngram_tokens_ = 0;            // rounds of such chains, and what they made
  std::vector<Outcomes> outcomes_;                         // by k
  std::map<int32_t, std::pair<int64_t, int64_t>> misses_;  // by fan-out: tries, misses
  std::vector<int> fan_;                                   // of the round
};

}  // namespace sluice

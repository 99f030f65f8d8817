// A head's output side: its norm and matrix over a draft vocabulary, and the target's distribution to compare with.
#pragma once

#include <nlohmann/json.hpp>

#include "base/ids.h"
#include "train/layers.h"

namespace sluice {

class Output {
 public:
  // The norm and the rows of `tokens` begin as the target's; the target's own stay beside them, frozen. `tokens` empty:
  // the whole vocabulary.
  Output(Parameters& parameters, const LayerShape& shape, const TargetTensors& target, std::vector<Token> tokens);

  // [N, d_model] to [N, draft vocabulary].
  torch::Tensor logits(const torch::Tensor& x) const;
  // The target's own distribution over the draft vocabulary, from its last hidden states: probabilities that sum to 1.
  torch::Tensor target_probabilities(const torch::Tensor& last_states) const;
  // Over the whole vocabulary: its logits.
  torch::Tensor target_logits(const torch::Tensor& last_states) const;

  // The head's matrix and norm become the target's behind `map` [d_model, d_model], which takes the head's normed
  // states to guesses of the target's.
  void begin_behind(const torch::Tensor& map);

  // Sum over the rows of KL(target || head), in nats.
  torch::Tensor divergence(const torch::Tensor& logits, const torch::Tensor& target_probabilities) const;

  // Of each row the likeliest token, as ids of the target. [N]
  std::vector<Token> guesses(const torch::Tensor& logits) const;
  // Of each row sum over tokens of min(p, q), with temperature 1 and the top_k likeliest of either: how often rule
  // `reject` accepts a token drawn from q.
  std::vector<double> overlaps(const torch::Tensor& logits, const torch::Tensor& target_logits, int64_t top_k) const;

  const std::vector<Token>& tokens() const { return tokens_; }
  int64_t n_vocab() const { return n_vocab_; }

 private:
  Parameters& parameters_;
  double epsilon_;
  std::vector<Token> tokens_;  // empty: all
  int64_t n_vocab_ = 0;
  torch::Tensor ids_;                        // [draft vocabulary] i64
  torch::Tensor target_norm_, target_rows_;  // frozen; rows of the draft vocabulary
  torch::Tensor target_output_;              // [n_vocab, d_model]
};

// How near a head's distribution is to the target's, over held-out text.
class Closeness {
 public:
  // logits: [N, draft vocabulary]; last_states: [N, d_model], the target's at the same positions.
  void add(const Output& output, const torch::Tensor& logits, const torch::Tensor& last_states);
  // Adds `kl` (nats a position) and `overlap` (see Output::overlaps; top-k 50) to the summary, and begins anew.
  void report(nlohmann::json& summary);

 private:
  double divergence_ = 0, overlap_ = 0;
  int64_t positions_ = 0;
};

}  // namespace sluice

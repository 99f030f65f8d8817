// One ranked level from the candidates of several sources.
#pragma once

#include <array>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/wire.h"

namespace sluice {

// What a draft model and the text itself say of the tokens after a node, made one: duplicates merged, and every
// probability an estimate of how often verification accepts such a candidate, learnt from what it did accept.
//
// Logistic mixing (Mahoney, "Adaptive weighing of context models for lossless data compression", 2005): a candidate
// that the sources hold likely with p_i gets 1 / (1 + exp(-(b + sum_i w_i ln(p_i / (1 - p_i))))); after the target has
// spoken, gradient descent on the coding cost. There is a set of weights for each degree of sureness of the text.
class Fusion {
 public:
  // The likeliest first, adding up to at most 1. Remembered until learn() or forget().
  std::vector<Candidate> fuse(NodeId node, const std::vector<Candidate>& model, const std::vector<Candidate>& text);

  // The target's token after the node is known. Nothing happens if the node's candidates were not fused here.
  void learn(NodeId node, Token token);
  // The nodes are gone.
  void forget(std::span<const NodeId> nodes);

 private:
  static constexpr double kRate = 0.02;
  static constexpr size_t kSets = 4;

  struct Weights {
    double bias = 0.0, model = 1.0, text = 0.15;
  };
  struct Opinion {
    Token token;
    double model, text;  // log odds
    double fused;        // probability
  };
  struct Said {
    size_t set;
    std::vector<Opinion> opinions;
  };
  std::array<Weights, kSets> weights_;
  std::unordered_map<NodeId, Said> said_;
};

}  // namespace sluice

// One ranked level from the candidates of several sources.
#pragma once

#include <array>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "source/policy.h"
#include "wire/draws.h"

namespace sluice {

// What several sources say of the tokens after a node, made one: duplicates merged, and every probability an estimate
// of how often verification accepts such a candidate, learnt from what it did accept.
//
// Logistic mixing (Mahoney, "Adaptive weighing of context models for lossless data compression", 2005) around the main
// source, the first that speaks of the node. It gives a candidate p_0 and the others p_i, and fused it has
//   1 / (1 + exp(-x)),  x = b_0 + w_0 ln(p_0 / (1 - p_0)) + sum_i (b_i + w_i f_i).
// f_i = ln(p_i / (1 - p_i)) - ln(m / (1 - m)), with m = policy::kLeastMentioned, is above 0 if the source mentions the
// candidate and 0 if not: a source that is silent changes nothing, and before anything is learnt all b are 0, w_0 is 1
// and the other w small, so that the main source is believed. After the target has spoken, gradient descent on the
// coding cost moves b and w, of which every source has a set for each degree of its sureness, apart for where its best
// candidate is the main source's too.
class Fusion {
 public:
  // said: a list for each source, the most trusted source first, always in the same order. The likeliest first, adding
  // up to at most 1. Remembered until learn() or forget().
  std::vector<Candidate> fuse(NodeId node, std::span<const std::vector<Candidate>> said);

  // The target's token after the node is known. Nothing happens if the node's candidates were not fused here.
  void learn(NodeId node, Token token);
  // The nodes are gone.
  void forget(std::span<const NodeId> nodes);

 private:
  static constexpr size_t kSets = policy::kSureness.size() + 1;

  struct Weights {
    double bias, weight;
  };
  // Of a source: as the main one, beside one of another opinion, and of the same.
  enum Role { kMain, kDiffers, kAgrees, kRoles };
  using Trust = std::array<std::array<Weights, kSets>, kRoles>;
  static Trust initial_trust();

  // A source that spoke of a node, with its weights then and from now on.
  struct Voice {
    size_t source;
    Role role;
    size_t set;
  };
  struct Opinion {
    Token token;
    std::vector<double> features;  // of each voice: f_i; of the main one, the first, log odds
    double fused;                  // probability
  };
  struct Said {
    std::vector<Voice> voices;
    std::vector<Opinion> opinions;
  };

  static Said merge(std::span<const std::vector<Candidate>> said);
  Weights& weights(const Voice& voice) { return trust_[voice.source][voice.role][voice.set]; }

  std::vector<Trust> trust_;  // by source
  std::unordered_map<NodeId, Said> said_;
};

}  // namespace sluice

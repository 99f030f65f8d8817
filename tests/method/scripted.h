// A pipeline played by hand, for tests of what a method proposes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "method/methods.h"

namespace sluice::test {

using Tokens = std::vector<Token>;

// What a source says after these tokens, counted from where the play began.
using Oracle = std::function<std::vector<Candidate>(const Tokens& text)>;

// The same numbers for the same seed and text: between 0 and 1.
inline double chance(uint64_t seed, const Tokens& text, uint64_t more = 0) {
  uint64_t x = seed * 0x9E3779B97F4A7C15ull + more;
  for (const Token token : text) x = (x ^ static_cast<uint64_t>(token + 7)) * 0xBF58476D1CE4E5B9ull + (x >> 29);
  x = (x ^ (x >> 30)) * 0x94D049BB133111EBull;
  return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

// A source with `n` candidates after every text, of falling probability, that are another order of the same tokens each
// time.
inline Oracle random_oracle(uint64_t seed, int32_t n = 4) {
  return [=](const Tokens& text) {
    std::vector<Candidate> candidates;
    const auto first = static_cast<Token>(chance(seed, text) * 50.0);
    double left = 1.0;
    for (Token i = 0; i < n; ++i) {
      const double p = left * (0.5 + 0.45 * chance(seed, text, static_cast<uint64_t>(i) + 1));
      candidates.push_back({(first + i) % 50, static_cast<float>(p)});
      left -= p;
    }
    for (size_t i = 1; i < candidates.size(); ++i)  // ranked
      candidates[i].probability = std::min(candidates[i].probability, candidates[i - 1].probability);
    return candidates;
  };
}

class Scripted {
 public:
  explicit Scripted(const std::string& method, const MethodOptions& options, Oracle oracle = random_oracle(1),
                    int32_t last_position = 1000, size_t n_sources = 1)
      : oracle_(std::move(oracle)), method_(std::move(make_method(method, options)->policy)) {
    speculation.last_position = last_position;
    speculation.n_sources = n_sources;
  }

  Proposal propose(bool first_stage = true, uint32_t sources = ~0u) {
    return propose({.first_stage = first_stage, .sources = sources});
  }
  Proposal propose(const Idle& idle) { return method_->propose(speculation, idle); }

  // Lets the source answer what it is asked, until something enters or nothing is asked. What entered.
  Tokens step(bool first_stage = true) {
    for (;;) {
      const Proposal proposal = propose(first_stage);
      for (const Ask& ask : proposal.expand) answer(ask);
      n_asked += proposal.expand.size();
      if (!proposal.enter.empty() || proposal.expand.empty()) return enter(proposal.enter);
    }
  }

  void answer(const Ask& ask) { answer(ask, oracle_(text(ask.node))); }
  void answer(const Ask& ask, std::vector<Candidate> candidates) {
    EXPECT_TRUE(speculation.tree.contains(ask.node));
    EXPECT_LT(speculation.tree.node(ask.node).position, speculation.last_position) << "nobody needs what follows";
    method_->drafted(speculation, ask.source, ask.node, std::move(candidates));
  }

  // What was committed since the play began, then the path from the root down to the node.
  Tokens text(NodeId node) const {
    Tokens all = committed;
    const auto path = speculation.tree.path(node);
    all.insert(all.end(), path.begin(), path.end());
    return all;
  }

  Tokens enter(const std::vector<NodeId>& nodes) {
    Tokens tokens;
    for (const NodeId node : nodes) {
      const auto& n = speculation.tree.node(node);
      EXPECT_FALSE(speculation.target.entered(node)) << "entered twice";
      EXPECT_TRUE(!n.parent.valid() || speculation.target.entered(n.parent)) << "entered before its parent";
      speculation.target.enter(node, {Cell(cells_++), BatchId(batches_), static_cast<uint16_t>(tokens.size())});
      tokens.push_back(n.token);
    }
    ++batches_;
    return tokens;
  }

  TokenTree::Advance verdict(Token token) {
    EXPECT_TRUE(speculation.target.entered(speculation.tree.root().id)) << "only what has entered can be verified";
    speculation.target.leave(speculation.tree.root().id);
    auto advance = speculation.tree.advance(token);
    for (const NodeId node : advance.pruned) speculation.target.leave(node);
    committed.push_back(token);
    return advance;
  }

  Method& method() { return *method_; }
  const TokenTree& tree() const { return speculation.tree; }

  Speculation speculation{.tree = TokenTree(9, 5), .target = {}, .drafts = {}, .n_sources = 1, .last_position = 0};
  Tokens committed;
  size_t n_asked = 0;

 private:
  Oracle oracle_;
  std::unique_ptr<Method> method_;
  int32_t cells_ = 0, batches_ = 0;
};

}  // namespace sluice::test

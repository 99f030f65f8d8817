// Everything speculative about one sequence: a tree of tokens whose root is the last committed one.
//
// A node is immutable: id, token, parent, and the probability that its source gave it. What a model has done with it is
// kept beside the tree, in that model's Residency. SpecPipe, section 3.2: layer appending and to-subtree pruning; the
// paper's arrays (index, P, M) are the columns of nodes() and the ancestry it encodes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "wire/draws.h"

namespace sluice {

class TokenTree {
 public:
  static constexpr size_t kMaxCandidates = 64;  // kept with a node
  static constexpr double kNone = -std::numeric_limits<double>::infinity();

  struct Node {
    NodeId id;
    NodeId parent;       // none for the root
    uint32_t above = 0;  // where it stands in nodes(); the root: at itself
    NodeId newest_child, older_sibling;
    Token token = kNoToken;
    int32_t position = 0;      // in the sequence
    float probability = 1.0f;  // given its parent, as its source said
    double log_probability = 0.0;
    double log_path = 0.0;  // sum of log_probability from the root's child down to here; the root: 0
    uint64_t text = 0;      // of the tokens from the tree's first root down to here: base/random.h's prolong()
    bool drafted = false;   // a source has been asked for its children
    bool foretold = false;  // a quicker one has been asked before
    bool free = false;      // itself it was foretold: no answer for its parent was waited for
    std::vector<Candidate> candidates;   // what the source said, likeliest first
    uint64_t grown = 0;                  // bit i: candidate i has become a child
    double next_log = kNone;             // log probability of the first of them that has not; kNone: all have
    std::shared_ptr<const Draws> draws;  // rule `reject`: how the first of them were drawn, if they were
  };

  TokenTree(Token root, int32_t position);

  // As nodes have it, which never comes to nothing.
  static double log_of(float probability) { return std::log(std::max(probability, 1e-30f)); }

  const Node& root() const { return nodes_.front(); }
  // Live nodes in the order of their ids: parents before children, levels in the order of appending.
  std::span<const Node> nodes() const { return nodes_; }
  size_t size() const { return nodes_.size(); }

  bool contains(NodeId id) const { return find(id).has_value(); }
  const Node& node(NodeId id) const { return nodes_[at(id)]; }  // REQUIRES: contains(id)
  std::optional<NodeId> child(NodeId parent, Token token) const;
  std::vector<NodeId> children(NodeId id) const;  // the oldest first. REQUIRES: contains(id)
  int32_t deepest() const { return deepest_; }    // the largest position of a node
  // The nodes there, in the order of their ids.
  const std::vector<NodeId>& frontier() const { return frontier_; }

  // Tokens from the root's child down to the node; empty for the root.
  std::vector<Token> path(NodeId id) const;

  // Adds a child. REQUIRES: contains(parent), no child of it has this token.
  NodeId append(NodeId parent, Token token, float probability);

  // Keeps what a source said of a node's children (at most kMaxCandidates). Children that have been drawn stay as they
  // are: then nothing that is said later counts. REQUIRES: contains(id).
  void set_candidates(NodeId id, std::vector<Candidate> candidates, std::shared_ptr<const Draws> draws = {});

  // The same from a source that is quick, for as long as the other has not spoken. REQUIRES: contains(id), not drafted.
  void foretell(NodeId id, std::vector<Candidate> candidates);

  struct Advance {
    bool hit = false;            // the tree held the token
    std::vector<NodeId> pruned;  // nodes that are gone, the old root not among them
  };
  // The target's own next token after the root is `token`: its node becomes the root and keeps its subtree; if the tree
  // doesn't hold it, a new node becomes the root, alone.
  Advance advance(Token token);

  // All of it is void but the root's token, which has a new node. Gives the nodes that are gone, the old root included.
  std::vector<NodeId> renew();

 private:
  std::optional<size_t> find(NodeId id) const;  // in nodes_
  size_t at(NodeId id) const;                   // REQUIRES: contains(id)
  static void mark_grown(Node& parent, Token token);
  static void look_for_next(Node& parent);
  void reach(const Node& node);

  std::vector<Node> nodes_;  // sorted by id; [0] is the root
  std::vector<int32_t> at_;  // where node id stands in nodes_, by id less the root's; -1: it is gone
  int32_t next_id_ = 0;
  int32_t deepest_;
  std::vector<NodeId> frontier_;
};

}  // namespace sluice

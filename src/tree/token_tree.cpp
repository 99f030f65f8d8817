#include "tree/token_tree.h"

#include <algorithm>
#include <bit>

#include "base/random.h"
#include "base/result.h"

namespace sluice {

TokenTree::TokenTree(Token root, int32_t position) : deepest_(position) {
  nodes_.push_back({.id = NodeId(next_id_++), .token = root, .position = position, .text = prolong(0, root)});
  at_ = {0};
  reach(nodes_.front());
}

// A node is there, of a larger id than those before it.
void TokenTree::reach(const Node& node) {
  if (node.position > deepest_) frontier_.clear(), deepest_ = node.position;
  if (node.position == deepest_) frontier_.push_back(node.id);
}

std::optional<size_t> TokenTree::find(NodeId id) const {
  const int64_t place = int64_t{id.value} - root().id.value;
  if (place < 0 || place >= std::ssize(at_)) return std::nullopt;
  const int32_t at = at_[static_cast<size_t>(place)];
  return at < 0 ? std::nullopt : std::optional(static_cast<size_t>(at));
}

size_t TokenTree::at(NodeId id) const {
  const auto found = find(id);
  SLUICE_CHECK(found, "the tree has no such node");
  return *found;
}

std::optional<NodeId> TokenTree::child(NodeId parent, Token token) const {
  const auto above = find(parent);
  for (NodeId id = above ? nodes_[*above].newest_child : NodeId(); id.valid(); id = node(id).older_sibling)
    if (node(id).token == token) return id;
  return std::nullopt;
}

std::vector<NodeId> TokenTree::children(NodeId parent) const {
  std::vector<NodeId> children;
  for (NodeId id = node(parent).newest_child; id.valid(); id = node(id).older_sibling) children.push_back(id);
  std::reverse(children.begin(), children.end());
  return children;
}

std::vector<Token> TokenTree::path(NodeId id) const {
  std::vector<Token> tokens;
  const Node* of = &node(id);
  tokens.reserve(static_cast<size_t>(of->position - root().position));
  for (; of->parent.valid(); of = &nodes_[of->above]) tokens.push_back(of->token);
  std::reverse(tokens.begin(), tokens.end());
  return tokens;
}

NodeId TokenTree::append(NodeId parent, Token token, float probability) {
  Node& above = nodes_[at(parent)];
  SLUICE_CHECK(!child(parent, token), "a node has one child a token");
  mark_grown(above, token);
  const double log_probability = log_of(probability);
  Node added{.id = NodeId(next_id_++),
             .parent = parent,
             .above = static_cast<uint32_t>(&above - nodes_.data()),
             .older_sibling = above.newest_child,
             .token = token,
             .position = above.position + 1,
             .probability = probability,
             .log_probability = log_probability,
             .log_path = above.log_path + log_probability,
             .text = prolong(above.text, token),
             .free = !above.drafted && above.foretold};
  above.newest_child = added.id;
  reach(added);
  at_.push_back(static_cast<int32_t>(nodes_.size()));
  nodes_.push_back(std::move(added));
  return nodes_.back().id;
}

void TokenTree::set_candidates(NodeId id, std::vector<Candidate> candidates, std::shared_ptr<const Draws> draws) {
  Node& n = nodes_[at(id)];
  if (n.draws) return;
  if (candidates.size() > kMaxCandidates) candidates.resize(kMaxCandidates);
  n.candidates = std::move(candidates);
  n.draws = std::move(draws);
  n.drafted = true;
  n.grown = 0;
  look_for_next(n);
  for (NodeId below = n.newest_child; below.valid(); below = node(below).older_sibling)
    mark_grown(n, node(below).token);
}

void TokenTree::foretell(NodeId id, std::vector<Candidate> candidates) {
  SLUICE_CHECK(!node(id).drafted, "what is known is not foretold");
  set_candidates(id, std::move(candidates));
  Node& n = nodes_[at(id)];
  n.drafted = false;
  n.foretold = true;
}

void TokenTree::mark_grown(Node& parent, Token token) {
  const int next = std::countr_one(parent.grown);
  for (size_t i = 0; i < parent.candidates.size(); ++i)
    if (parent.candidates[i].token == token) parent.grown |= uint64_t{1} << i;
  if (std::countr_one(parent.grown) != next) look_for_next(parent);
}

void TokenTree::look_for_next(Node& parent) {
  const auto next = static_cast<size_t>(std::countr_one(parent.grown));
  parent.next_log = next < parent.candidates.size() ? log_of(parent.candidates[next].probability) : kNone;
}

TokenTree::Advance TokenTree::advance(Token token) {
  Advance result;
  result.pruned.reserve(nodes_.size());
  const auto next = child(root().id, token);
  result.hit = next.has_value();
  const NodeId old_root = root().id;
  const uint64_t text = prolong(root().text, token);
  deepest_ = root().position + 1;
  frontier_.clear();
  const auto place = [&](NodeId id) -> int32_t& { return at_[static_cast<size_t>(id.value - old_root.value)]; };
  place(old_root) = -1;
  size_t n_kept = 0;
  for (size_t i = 1; i < nodes_.size(); ++i) {
    Node& n = nodes_[i];
    const bool is_root = n.id == next;
    const int32_t above = is_root ? 0 : place(n.parent);  // among those that are kept
    if (above < 0) {
      place(n.id) = -1;
      result.pruned.push_back(n.id);
      continue;
    }
    place(n.id) = static_cast<int32_t>(n_kept);
    n.above = static_cast<uint32_t>(above);
    if (is_root) {
      n.parent = n.older_sibling = NodeId();
      n.log_path = 0.0;
    } else {
      n.log_path = nodes_[n.above].log_path + n.log_probability;
    }
    reach(n);
    nodes_[n_kept++] = std::move(n);
  }
  nodes_.resize(n_kept);
  if (!next) {
    at_.push_back(0);
    nodes_.push_back({.id = NodeId(next_id_++), .token = token, .position = deepest_, .text = text});
    reach(nodes_.back());
  }
  at_.erase(at_.begin(), at_.begin() + (root().id.value - old_root.value));
  return result;
}

std::vector<NodeId> TokenTree::renew() {
  std::vector<NodeId> gone;
  for (const Node& n : nodes_) gone.push_back(n.id);
  const Node& old = root();
  nodes_ = {{.id = NodeId(next_id_++), .token = old.token, .position = old.position, .text = old.text}};
  at_ = {0};
  deepest_ = root().position;
  frontier_ = {root().id};
  return gone;
}

}  // namespace sluice

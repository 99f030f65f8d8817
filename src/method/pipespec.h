#pragma once

#include <unordered_map>
#include <vector>

#include "method/cascade.h"
#include "method/method.h"

namespace sluice {

// PipeSpec, Algorithm 1: a hierarchy of models, each of which verifies what the one before has produced, in whatever
// batch has accumulated, and goes on at once as if all that follows will agree. A rejection rolls back all smaller
// models.
//
// The outputs of the models are paths in the one tree, so that rolling back is only to remember another node; the
// target takes the path of the largest draft model whenever it is free.
class PipeSpec final : public Method {
 public:
  explicit PipeSpec(const MethodOptions& options) : lookahead_(options.lookahead) {}
  Proposal propose(Speculation& speculation, const Idle& idle) override;
  void drafted(Speculation& speculation, size_t source, NodeId node, std::vector<Candidate> candidates,
               std::shared_ptr<const Draws> draws) override;

 private:
  void begin(const Speculation& speculation);
  void settle(const TokenTree& tree);
  void advance(TokenTree& tree, int32_t last_position);
  bool step(TokenTree& tree, size_t stage, int32_t last_position);
  bool goes_on(const Speculation& speculation, size_t stage) const;
  bool suffices(const Speculation& speculation, NodeId end, std::span<const NodeId> drafts, size_t stage) const;
  NodeId tip(const TokenTree& tree, size_t stage) const;

  int32_t lookahead_;  // tokens that a verifier waits for, or kWaitForDoubt
  Cascade<NodeId> cascade_;
  NodeId root_;
  std::vector<std::unordered_map<NodeId, Candidate>> choices_;  // by stage: its own token after a node
};

}  // namespace sluice

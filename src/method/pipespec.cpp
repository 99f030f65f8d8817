#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>
#include <vector>

#include "method/cascade.h"
#include "method/makers.h"
#include "method/policy.h"

namespace sluice {

namespace {

// PipeSpec, Algorithm 1: a hierarchy of models, each of which verifies what the one before has produced, in whatever
// batch has accumulated, and goes on at once as if all that follows will agree. A rejection rolls back all smaller
// models.
//
// The outputs of the models are paths in the one tree, so that rolling back is only to remember another node; the
// target takes the path of the largest draft model whenever it is free.
class PipeSpec final : public Method {
 public:
  explicit PipeSpec(const MethodOptions& options) : lookahead_(options.lookahead) {}

  Proposal propose(Speculation& speculation, const Idle& idle) override {
    TokenTree& tree = speculation.tree;
    begin(speculation);
    settle(tree);
    advance(tree, speculation.last_position);

    Proposal proposal;
    for (size_t stage = 0; stage < cascade_.stages(); ++stage) {
      const auto drafts = cascade_.drafts(stage);
      if (!idle.source(stage) || !goes_on(speculation, stage)) continue;
      if (stage > 0 && !suffices(speculation, tip(tree, stage), drafts, stage - 1)) continue;
      std::vector<NodeId> nodes = {tip(tree, stage)};
      nodes.insert(nodes.end(), drafts.begin(), drafts.end());
      for (const NodeId node : nodes)
        if (!choices_[stage].contains(node) && tree.node(node).position < speculation.last_position)
          proposal.expand.push_back({node, stage});
    }
    const size_t largest = cascade_.stages() - 1;
    const auto produced = cascade_.output(largest);
    if (!idle.first_stage || speculation.target.entered(tree.root().id)) return proposal;
    if (!suffices(speculation, tree.root().id, produced, largest)) return proposal;
    proposal.enter.push_back(tree.root().id);
    proposal.enter.insert(proposal.enter.end(), produced.begin(), produced.end());
    return proposal;
  }

  void drafted(Speculation& speculation, size_t source, NodeId node, std::vector<Candidate> candidates,
               std::shared_ptr<const Draws>) override {
    begin(speculation);
    choices_[source][node] = candidates.empty() ? Candidate{kNoToken, 0.0f} : candidates.front();
  }

 private:
  void begin(const Speculation& speculation) {
    if (!choices_.empty()) return;
    choices_.resize(speculation.n_sources);
    cascade_ = Cascade<NodeId>(speculation.n_sources);
  }

  // The target has spoken: what it put out is final.
  void settle(const TokenTree& tree) {
    if (root_ == tree.root().id) return;
    root_ = tree.root().id;
    cascade_.settle(root_);
    for (auto& choices : choices_)
      std::erase_if(choices, [&](const auto& choice) { return !tree.contains(choice.first); });
  }

  // Lets every stage take over what it has computed, the larger ones last. They may take a smaller one back to where it
  // had been before, so that what it computed then serves again.
  void advance(TokenTree& tree, int32_t last_position) {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < cascade_.stages(); ++stage)
        while (step(tree, stage, last_position)) moved = true;
    }
  }

  // Puts out the stage's own token after its last one, if it is known.
  bool step(TokenTree& tree, size_t stage, int32_t last_position) {
    const NodeId end = tip(tree, stage);
    const auto choice = choices_[stage].find(end);
    if (choice == choices_[stage].end() || choice->second.token == kNoToken) return false;
    if (tree.node(end).position >= last_position || cascade_.output(stage).size() >= policy::kFurthestAhead)
      return false;
    const auto known = tree.child(end, choice->second.token);
    const NodeId next = known ? *known : tree.append(end, choice->second.token, 1.0f);
    cascade_.worked(stage, {&next, 1});
    return true;
  }

  // Whether the stage will produce more without anybody's verdict.
  bool goes_on(const Speculation& speculation, size_t stage) const {
    const NodeId end = tip(speculation.tree, stage);
    return speculation.tree.node(end).position < speculation.last_position &&
           cascade_.output(stage).size() < policy::kFurthestAhead && !choices_[stage].contains(end);
  }

  // Whether it is time to verify what the stage has put out after the node `end`. A pass cannot be stopped: one that
  // begins before there is a doubt finds most likely nothing to correct, and what is doubted next waits until it is
  // over.
  bool suffices(const Speculation& speculation, NodeId end, std::span<const NodeId> drafts, size_t stage) const {
    if (!goes_on(speculation, stage)) return true;
    if (lookahead_ != kWaitForDoubt) return std::ssize(drafts) >= lookahead_;
    double all_right = 1.0;
    for (const NodeId node : drafts) {
      const auto choice = choices_[stage].find(std::exchange(end, node));
      all_right *= choice == choices_[stage].end() ? 0.0 : choice->second.probability;
    }
    return all_right < policy::kDoubt;
  }

  NodeId tip(const TokenTree& tree, size_t stage) const {
    const auto output = cascade_.output(stage);
    return output.empty() ? tree.root().id : output.back();
  }

  int32_t lookahead_;  // tokens that a verifier waits for, or kWaitForDoubt
  Cascade<NodeId> cascade_;
  NodeId root_;
  std::vector<std::unordered_map<NodeId, Candidate>> choices_;  // by stage: its own token after a node
};

}  // namespace

std::unique_ptr<Method> make_pipespec(const MethodOptions& options) { return std::make_unique<PipeSpec>(options); }

}  // namespace sluice

#include "method/chain.h"
#include "method/level.h"
#include "method/makers.h"

namespace sluice {

namespace {

// Speculative Pipeline Decoding, SPD (sections 3.4 to 3.7): while the tokens in the pipeline advance by a stage, the
// speculation module guesses from the states at the step's beginning what follows the newest one, and the guess enters
// at the next step. With W > 1 the W likeliest branches by cumulative probability are kept, a level a step. A verdict
// that the tree doesn't hold flushes the pipeline, which fills again from the right token.
class SpeculativePipelineDecoding final : public Method {
 public:
  explicit SpeculativePipelineDecoding(const MethodOptions& options) : width_(options.width) {}

  Proposal propose(Speculation& speculation, const Idle& idle) override {
    TokenTree& tree = speculation.tree;
    Proposal proposal;
    if (idle.first_stage) {
      proposal.enter = first_waiting_levels(speculation, 1);
      if (proposal.enter.empty()) {
        grow(speculation);
        proposal.enter = first_waiting_levels(speculation, 1);
      }
    }
    if (tree.deepest() < speculation.last_position)
      for (const NodeId id : tree.frontier())
        if (!tree.node(id).drafted) proposal.expand.push_back({id});
    return proposal;
  }

 private:
  // The next level, once the source has spoken of the whole deepest one.
  void grow(Speculation& speculation) const {
    TokenTree& tree = speculation.tree;
    if (tree.deepest() >= speculation.last_position) return;
    const std::vector<NodeId> level = tree.frontier();
    for (const NodeId id : level)
      if (!tree.node(id).drafted) return;
    if (width_ == 1)
      grow_chain(tree, level.front(), 1, speculation.last_position);
    else
      append_level(tree, width_);
  }

  int32_t width_;  // W
};

}  // namespace

std::unique_ptr<Method> make_spd(const MethodOptions& options) {
  return std::make_unique<SpeculativePipelineDecoding>(options);
}

}  // namespace sluice

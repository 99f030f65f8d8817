#include "method/chain.h"
#include "method/makers.h"

namespace sluice {

namespace {

// Speculative decoding (Leviathan et al., Chen et al., 2023), SD in the papers: the source drafts a chain of K tokens,
// then the target verifies it in one pass, then the source drafts again. One of the two is always idle.
class SpeculativeDecoding final : public Method {
 public:
  explicit SpeculativeDecoding(const MethodOptions& options) : length_(options.depth), p_min_(options.draft_p_min) {}

  Proposal propose(Speculation& speculation, const Idle& idle) override {
    TokenTree& tree = speculation.tree;
    if (speculation.target.entered(tree.root().id)) return {};  // the chain is being verified
    Chain chain = grow_chain(tree, tree.root().id, length_, speculation.last_position, p_min_);
    if (chain.undrafted) return {.enter = {}, .expand = {{chain.nodes.back()}}};
    if (!idle.first_stage) return {};
    return {.enter = std::move(chain.nodes), .expand = {}};
  }

 private:
  int32_t length_;  // K
  double p_min_;    // the source goes on below paths at least so likely
};

}  // namespace

std::unique_ptr<Method> make_sd(const MethodOptions& options) { return std::make_unique<SpeculativeDecoding>(options); }

}  // namespace sluice

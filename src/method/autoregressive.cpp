#include "method/makers.h"

namespace sluice {

namespace {

// Plain decoding on the pipeline (PP in the papers): the root enters as soon as it is known, then everything waits for
// it.
class Autoregressive final : public Method {
 public:
  Proposal propose(Speculation& speculation, const Idle& idle) override {
    const NodeId root = speculation.tree.root().id;
    if (!idle.first_stage || speculation.target.entered(root)) return {};
    return {.enter = {root}, .expand = {}};
  }
};

}  // namespace

std::unique_ptr<Method> make_autoregressive(const MethodOptions&) { return std::make_unique<Autoregressive>(); }

}  // namespace sluice

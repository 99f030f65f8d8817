#include "method/autoregressive.h"

namespace sluice {

Proposal Autoregressive::propose(Speculation& speculation, const Idle& idle) {
  const NodeId root = speculation.tree.root().id;
  if (!idle.first_stage || speculation.target.entered(root)) return {};
  return {.enter = {root}, .expand = {}};
}

}  // namespace sluice

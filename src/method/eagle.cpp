#include "method/eagle.h"

namespace sluice {

Eagle::Eagle(HeadKind kind, const MethodOptions& options) : kind_(kind) {
  if (kind == HeadKind::kEagle3 && options.tree_nodes > 0)
    schedule_ = std::make_unique<SpecInfer>(options);
  else
    schedule_ = std::make_unique<SpeculativeDecoding>(options);
}

}  // namespace sluice

#pragma once

#include "source/heads/head_module.h"

namespace sluice {

// PPSD's early exit: a norm and an output matrix, perhaps with layers before them, on the states after one of the
// target's layers.
class EarlyExit final : public HeadModule {
 public:
  EarlyExit(std::unique_ptr<HeadLayers> layers, int32_t n_cells) : HeadModule(std::move(layers), n_cells, 0) {}
  void run(const Batch& batch, std::vector<float>& hidden) override;
};

}  // namespace sluice

// Stages on this machine's processors, by kernels of our own.
#pragma once

#include <memory>

#include "compute/stage_runner.h"

namespace sluice {

inline constexpr Exactness kCpuExactness = Exactness::kBitwise;

// REQUIRES: options that fit the model.
Result<std::unique_ptr<StageRunner>> make_cpu_stage_runner(const ModelFile& model, const StageOptions& options);

}  // namespace sluice

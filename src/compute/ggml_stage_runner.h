// Stages on a device of ggml's.
#pragma once

#include <memory>

#include "compute/stage_runner.h"

namespace sluice {

// Cells hold what options.kv says. Without options.width_lock, or where the probe at its start
// (GgmlLayers::holds_still) finds a row's bits moved by what else is in a pass, it is greedy-checked, else
// width-locked. REQUIRES: options that fit the model. Errors as GgmlLayers::create().
Result<std::unique_ptr<StageRunner>> make_ggml_stage_runner(const ModelFile& model, const StageOptions& options);

}  // namespace sluice

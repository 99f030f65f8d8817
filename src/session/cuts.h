// Where a model is cut into stages.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/layer_range.h"
#include "base/profile.h"
#include "base/result.h"
#include "model/model_file.h"
#include "session/options.h"

namespace sluice {

// Bytes that are free on a device of ggml's; 0: it doesn't say, or isn't there.
int64_t free_memory_of(const std::string& device);
using FreeMemory = std::function<int64_t(const std::string& device)>;

// About what passes of a stage need of a device's memory, besides weights and cells: the paths of wide ones, what
// layers leave for the next operation, and what kernels take for themselves.
int64_t bytes_of_passes(const HyperParameters& hparams);

// The layers of each stage: as --cuts says, or else as balanced as can be by what the profile says that layers take, or
// by the bytes that they read and how fast their devices are, within what hosts are to give, or what is free on
// devices. REQUIRES: a device for all stages, or one for each. Errors name --stages, --cuts, --device or --hosts, and
// what would be right.
Result<std::vector<LayerRange>> choose_cuts(const ModelFile& model, const SessionOptions& options,
                                            const std::optional<Profile>& profile,
                                            const FreeMemory& free = free_memory_of);

// Into so many stages at most a model can be cut: layers that read each other's keys and values stay together.
int32_t most_stages(const HyperParameters& hparams);

}  // namespace sluice

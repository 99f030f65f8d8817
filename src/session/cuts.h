// Where a model is cut into stages.
#pragma once

#include <optional>
#include <vector>

#include "base/layer_range.h"
#include "base/profile.h"
#include "base/result.h"
#include "model/model_file.h"
#include "session/options.h"

namespace sluice {

// The layers of each stage: as --cuts says, or else as balanced as can be by what the profile says that layers take, or
// by the bytes that they read, within what hosts are to give. Errors name --stages, --cuts or --hosts, and what would
// be right.
Result<std::vector<LayerRange>> choose_cuts(const ModelFile& model, const SessionOptions& options,
                                            const std::optional<Profile>& profile);

// Into so many stages at most a model can be cut: layers that read each other's keys and values stay together.
int32_t most_stages(const HyperParameters& hparams);

}  // namespace sluice

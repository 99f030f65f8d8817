// Measures what work costs on this machine: the profile `local`.
#pragma once

#include <functional>
#include <string>

#include "base/profile.h"
#include "compute/stage_runner.h"
#include "model/model_file.h"

namespace sluice {

// Where the profile `local` lives: $XDG_CACHE_HOME/sluice/local.json, or ~/.cache/sluice/local.json.
std::string local_profile_path();

// Seconds of a layer, the head and the embedding as functions of the rows, by timing `model`: the median of several
// runs at each width. Of `with` its device, width lock, threads and type of keys and values are read. `progress` is
// told the share that is done and says whether to go on; if not, the profile stays incomplete. Errors as
// make_stage_runner()'s.
Result<Profile> measure_profile(const ModelFile& model, const StageOptions& with,
                                const std::function<bool(double)>& progress);

// Fewer rows never take longer: where they seem to, other work was in the way, and the time of more rows stands for
// theirs.
void mend(CostCurve& measured);

// A pass of a draft model by what was measured of it: all its layers, and the head for each row.
CostCurve draft_pass(const Profile& measured, int32_t n_layers);

}  // namespace sluice

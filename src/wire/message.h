// All that travels between processes.
#pragma once

#include <variant>

#include "wire/batch.h"
#include "wire/hello.h"
#include "wire/recipe.h"
#include "wire/report.h"
#include "wire/weights.h"

namespace sluice {

// The place of a kind in this list is its number on the wire.
using Message =
    std::variant<Batch, Amendment, Taps, TapsArrived, Outcome, StageReport, WorkerFailed, StageRecipe, Hello,
                 StageSetup, StageReady, WeightsAsked, WeightsOffered, WeightBlockAsked, WeightBlock, NextUnreachable>;

}  // namespace sluice

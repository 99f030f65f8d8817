// What a lock on the width of passes did not do.
#pragma once

#include <string>

#include "compute/stage_runner.h"
#include "session/options.h"

namespace sluice {

// That bits move in spite of it, and whose, in a line for the user; empty: they are still, or no lock was asked for.
// `exactness`: of the weakest stage.
std::string lock_text(const SessionOptions& options, Exactness exactness);

}  // namespace sluice

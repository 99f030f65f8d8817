// Sources by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "source/source.h"

namespace sluice {

// By the names of --source; empty: the default. Errors name --source and list what there is.
Result<std::unique_ptr<Source>> make_source(const std::vector<std::string>& names);

}  // namespace sluice

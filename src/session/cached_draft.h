// Looks for a draft model among those that were downloaded.
#pragma once

#include <string>

#include "base/result.h"
#include "model/model_file.h"
#include "model/tokenizer.h"

namespace sluice {

// The path of the smallest model in the cache (model/hub.h) that has the target's vocabulary and is at most half as
// large. An error if there is none.
Result<std::string> cached_draft(const ModelFile& target, const Tokenizer& vocabulary);

}  // namespace sluice

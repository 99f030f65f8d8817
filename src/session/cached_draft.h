// Looks for a draft model among those that were downloaded.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "model/hub.h"
#include "model/model_file.h"
#include "model/tokenizer.h"

namespace sluice {

// The models in the cache (model/hub.h) that have the target's vocabulary and are at most half as large, the smallest
// first.
std::vector<CachedModel> cached_drafts(const ModelFile& target, const Tokenizer& vocabulary);

// The path of the first of them. An error if there is none.
Result<std::string> cached_draft(const ModelFile& target, const Tokenizer& vocabulary);

}  // namespace sluice

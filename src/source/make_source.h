// Sources by name.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "source/known_text.h"
#include "source/source.h"

namespace sluice {

// Where a method's guesses come from: the text itself, a draft model on its own worker, or both, fused.
struct SourceSlot {
  std::unique_ptr<Source> local;  // answers at once
  std::optional<size_t> draft;    // which of the draft models, the smallest being 0; answers when it has computed
  std::string name() const;
};

// By the names of --source; empty: draft models if there are any, and n-grams if there are none or a corpus is at hand.
// N-grams know the corpus, if there is one, beside the text itself. A hierarchy gets a slot for each
// source, all draft models in their order; otherwise there is one slot, with the largest draft model.
// Errors name --source and list what there is.
Result<std::vector<SourceSlot>> make_sources(const std::vector<std::string>& names, size_t n_drafts, bool hierarchy,
                                             std::shared_ptr<const KnownText> corpus = nullptr);

}  // namespace sluice

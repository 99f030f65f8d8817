#include "source/make_source.h"

#include <algorithm>
#include <utility>

#include "source/ngram.h"

namespace sluice {

std::string SourceSlot::name() const {
  const std::string first = local ? std::string(local->name()) : "";
  return first + (local && draft ? "+" : "") + (draft ? "draft" : "");
}

Result<std::vector<SourceSlot>> make_sources(const std::vector<std::string>& names, size_t n_drafts, bool hierarchy,
                                             std::shared_ptr<const KnownText> corpus) {
  for (const auto& name : names) {
    if (name != "ngram" && name != "draft")
      return input_error("--source " + name + " is not available; there are: ngram, draft");
    if (std::count(names.begin(), names.end(), name) > 1) return input_error("--source names " + name + " twice");
    if (name == "draft" && n_drafts == 0) return input_error("--source draft needs a model: add --draft FILE");
  }
  const auto named = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  const bool drafts = n_drafts > 0 && (names.empty() || named("draft"));
  const bool ngram = !drafts || named("ngram") || (names.empty() && corpus != nullptr);
  std::vector<SourceSlot> slots;
  if (ngram) slots.push_back({std::make_unique<NgramSource>(std::move(corpus)), std::nullopt});
  if (!drafts) return slots;
  if (hierarchy) {
    for (size_t i = 0; i < n_drafts; ++i) slots.push_back({nullptr, i});
  } else {
    if (slots.empty()) slots.emplace_back();
    slots.front().draft = n_drafts - 1;
  }
  return slots;
}

}  // namespace sluice

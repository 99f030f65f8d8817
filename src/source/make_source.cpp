#include "source/make_source.h"

#include <algorithm>
#include <utility>

#include "source/ngram.h"

namespace sluice {

std::string SourceSlot::name() const {
  const std::string first = local ? std::string(local->name()) : "";
  return first + (local && draft ? "+" : "") + (draft ? (is_head ? "head" : "draft") : "");
}

Result<std::vector<SourceSlot>> make_sources(const std::vector<std::string>& names, SourcesAtHand at_hand,
                                             bool hierarchy, bool wants_head, bool wants_text) {
  for (const auto& name : names) {
    if (name != "ngram" && name != "draft" && name != "head")
      return input_error("--source " + name + " is not available; there are: ngram, draft, head");
    if (std::count(names.begin(), names.end(), name) > 1) return input_error("--source names " + name + " twice");
    if (name == "draft" && at_hand.n_drafts == 0) return input_error("--source draft needs a model: add --draft FILE");
    if (name == "head" && !at_hand.head) return input_error("--source head needs a trained head: add --head FILE");
  }
  const auto named = [&](const char* name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  if (named("head") && named("draft"))
    return input_error("--source head,draft: of a head and a draft model one can be fused with n-grams");
  const bool head = names.empty() ? at_hand.head && (wants_head || at_hand.n_drafts == 0) : named("head");
  const bool drafts = names.empty() ? at_hand.n_drafts > 0 && !head : named("draft");
  const bool ngram =
      (!head && !drafts) || named("ngram") || (names.empty() && (wants_text || at_hand.corpus != nullptr));
  std::vector<SourceSlot> slots;
  if (ngram) slots.push_back({std::make_unique<NgramSource>(std::move(at_hand.corpus)), std::nullopt});
  if (!head && !drafts) return slots;
  if (hierarchy) {
    for (size_t i = 0; drafts && i < at_hand.n_drafts; ++i) slots.push_back({nullptr, i});
    if (head) slots.push_back({nullptr, at_hand.n_drafts, true});
    return slots;
  }
  if (slots.empty()) slots.emplace_back();
  slots.front().draft = head ? at_hand.n_drafts : at_hand.n_drafts - 1;
  slots.front().is_head = head;
  return slots;
}

}  // namespace sluice

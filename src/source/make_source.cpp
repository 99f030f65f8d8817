#include "source/make_source.h"

#include <algorithm>
#include <utility>

#include "source/ngram.h"

namespace sluice {

std::string SourceSlot::name() const {
  const std::string first = local ? std::string(local->name()) : "";
  return first + (local && draft ? "+" : "") + (draft ? (is_mtp ? "mtp" : is_head ? "head" : "draft") : "");
}

Result<std::vector<SourceSlot>> make_sources(const std::vector<SourceKind>& asked, SourcesAtHand at_hand,
                                             bool hierarchy, bool wants_head, bool wants_text) {
  const auto times = [&](SourceKind kind) { return std::count(asked.begin(), asked.end(), kind); };
  for (const auto& [name, kind] : kSources)
    if (times(kind) > 1) return input_error("--source names " + std::string(name) + " twice");
  const bool mtp_asked = times(SourceKind::kMtp) > 0, drafts_asked = times(SourceKind::kDraft) > 0;
  const bool head_asked = times(SourceKind::kHead) > 0 || mtp_asked;
  if (drafts_asked && at_hand.n_drafts == 0) return input_error("--source draft needs a model: add --draft FILE");
  if (mtp_asked && !at_hand.mtp)
    return input_error("--source mtp needs the model's own layer that predicts further tokens as the head, and " +
                       std::string(at_hand.head ? "--head gives another" : "it was not opened with the model"));
  if (head_asked && !at_hand.head) return input_error("--source head needs a trained head: add --head FILE");
  if (mtp_asked && times(SourceKind::kHead) > 0) return input_error("--source head,mtp names one head twice");
  if (head_asked && drafts_asked)
    return input_error("--source head,draft: of a head and a draft model one can be fused with n-grams");
  const bool open = asked.empty();
  const bool head = open ? at_hand.head && (wants_head || at_hand.n_drafts == 0) : head_asked;
  const bool drafts = open ? at_hand.n_drafts > 0 && !head : drafts_asked;
  const bool ngram =
      (!head && !drafts) || times(SourceKind::kNgram) > 0 || (open && (wants_text || at_hand.corpus != nullptr));
  std::vector<SourceSlot> slots;
  if (ngram) slots.push_back({std::make_unique<NgramSource>(std::move(at_hand.corpus)), std::nullopt});
  if (!head && !drafts) return slots;
  if (hierarchy) {
    for (size_t i = 0; drafts && i < at_hand.n_drafts; ++i) slots.push_back({nullptr, i});
    if (head) slots.push_back({nullptr, at_hand.n_drafts, true, at_hand.mtp});
    return slots;
  }
  if (slots.empty()) slots.emplace_back();
  slots.front().draft = head ? at_hand.n_drafts : at_hand.n_drafts - 1;
  slots.front().is_head = head;
  slots.front().is_mtp = head && at_hand.mtp;
  return slots;
}

}  // namespace sluice

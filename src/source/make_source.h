// The sources that a request asks for.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/choice.h"
#include "base/result.h"
#include "source/known_text.h"
#include "source/source.h"

namespace sluice {

// kMtp: the head that is a layer of the model's own file.
enum class SourceKind : uint8_t { kNgram, kDraft, kHead, kMtp };
inline constexpr Choice<SourceKind> kSources[] = {{"ngram", SourceKind::kNgram},
                                                  {"draft", SourceKind::kDraft},
                                                  {"head", SourceKind::kHead},
                                                  {"mtp", SourceKind::kMtp}};

// Where a method's guesses come from: the text itself, a draft model or a head on its own worker, or both, fused.
struct SourceSlot {
  std::unique_ptr<Source> local;  // answers at once
  std::optional<size_t> draft;    // which of the draft models, the smallest being 0; answers when it has computed
  bool is_head = false;           // `draft` is the head, which comes after the draft models
  bool is_mtp = false;            // of kind mtp
  std::string name() const;
};

// What a method's sources can be made of.
struct SourcesAtHand {
  size_t n_drafts = 0;
  bool head = false, mtp = false;           // mtp: the head is of that kind
  std::shared_ptr<const KnownText> corpus;  // that n-grams know beside the text itself; may be none
};

// Those that are asked for; none: what the method prefers, that is the head if it `wants_head`, else draft models if
// there are any, else the head, else n-grams; and n-grams as well if it `wants_text` or a corpus is at hand. A
// hierarchy gets a slot for each source, all draft models in their order; otherwise there is one slot, with the head or
// the largest draft model. Errors name --source.
Result<std::vector<SourceSlot>> make_sources(const std::vector<SourceKind>& asked, SourcesAtHand at_hand,
                                             bool hierarchy, bool wants_head = false, bool wants_text = false);

}  // namespace sluice

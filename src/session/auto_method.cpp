#include "session/auto_method.h"

#include "method/methods.h"

namespace sluice {

namespace {

// By a draft model, which sees further than a head, or by n-grams alone.
constexpr const char* kOfTrees = "surge";
// Heads that come with the program: for a pipeline of stages, and for a model in one piece.
constexpr HeadKind kOfPipelines = HeadKind::kSpd, kOfOnePiece = HeadKind::kEagle3;

bool knows_what_to_guess_by(const SessionOptions& options) {
  return !options.drafts.empty() || !options.heads.empty() || !options.request.sources.empty() ||
         !options.ngram_corpus.empty();
}

}  // namespace

std::string best_method(const AtHand& at_hand) {
  return at_hand.head && !at_hand.draft ? method_of(*at_hand.head) : kOfTrees;
}

std::optional<HeadKind> head_worth_loading(const SessionOptions& options) {
  if (knows_what_to_guess_by(options)) return std::nullopt;
  return options.stages_asked_for() ? kOfPipelines : kOfOnePiece;
}

bool draft_worth_loading(const SessionOptions& options, const std::optional<Profile>& profile) {
  const bool can_be_priced = !profile || !profile->drafts.empty();
  return options.request.method == kAutoMethod && !knows_what_to_guess_by(options) && options.stages_asked_for() &&
         can_be_priced;
}

std::vector<std::string> methods_of_run(const SessionOptions& options) {
  if (options.request.method != kAutoMethod) return {options.request.method};
  const auto with_heads = [](std::vector<std::string> methods, std::initializer_list<HeadKind> kinds) {
    for (const HeadKind kind : kinds) methods.push_back(method_of(kind));
    return methods;
  };
  if (!options.drafts.empty()) return {"ar", kOfTrees};
  if (options.heads.empty()) return with_heads({"ar", kOfTrees}, {kOfPipelines, kOfOnePiece});
  // Of which kind a head is, the file says.
  return with_heads({"ar"}, {HeadKind::kSpd, HeadKind::kEagle3, HeadKind::kPEagle, HeadKind::kExit});
}

}  // namespace sluice

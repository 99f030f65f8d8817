#include "session/auto_method.h"

#include "method/methods.h"

namespace sluice {

namespace {

// A draft model sees further than a head, and both more than n-grams.
constexpr const char* kOfDrafts = "surge";
constexpr const char* kOfNgrams = "specpipe";
// Heads that come with the program: for a pipeline of stages, and for a model in one piece.
constexpr HeadKind kOfPipelines = HeadKind::kSpd, kOfOnePiece = HeadKind::kEagle3;

bool knows_what_to_guess_by(const SessionOptions& options) {
  return !options.drafts.empty() || !options.heads.empty() || !options.request.sources.empty() ||
         !options.ngram_corpus.empty();
}

}  // namespace

std::string best_method(const AtHand& at_hand) {
  if (at_hand.draft) return kOfDrafts;
  return at_hand.head ? method_of(*at_hand.head) : kOfNgrams;
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
  if (!options.drafts.empty()) return {"ar", best_method({.draft = true})};
  std::vector<std::string> methods = {"ar"};
  const auto add = [&](std::optional<HeadKind> head) { methods.push_back(best_method({.head = head})); };
  if (options.heads.empty()) {
    add(std::nullopt);
    methods.push_back(best_method({.draft = true}));
    for (const HeadKind kind : {kOfPipelines, kOfOnePiece}) add(kind);
  } else {  // of which kind, the file says
    for (const HeadKind kind : {HeadKind::kSpd, HeadKind::kEagle3, HeadKind::kPEagle, HeadKind::kExit}) add(kind);
  }
  return methods;
}

}  // namespace sluice

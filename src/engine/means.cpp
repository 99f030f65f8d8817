#include "engine/means.h"

#include "source/ngram.h"

namespace sluice {

namespace {

// Whether the rule is defined for the method's trees: whether their guesses can be drawn.
Status check_rule(Rule rule, const ActiveMethod& method) {
  if (rule != Rule::kReject || !method.traits.speculates || method.traits.draws > 0) return {};
  return input_error("--verify reject needs guesses that are drawn from the source's distribution, but the models of " +
                     std::string(method.name) + " pass on their likeliest tokens; take --verify match for it");
}

// A method's sources.
Result<std::vector<SourceSlot>> sources_of(const MethodTraits& method, Rule rule, const std::vector<SourceKind>& asked,
                                           const SourcesAtHand& at_hand) {
  // What a draft model and n-grams say together is ranked, so nothing is drawn unless the model is alone.
  const bool wants_text = method.wants_text && rule != Rule::kReject;
  SLUICE_TRY(auto sources, make_sources(asked, at_hand, method.has_hierarchy, method.head.has_value(), wants_text));
  if (method.has_fallback && sources.front().draft)
    sources.push_back({std::make_unique<NgramSource>(at_hand.corpus), std::nullopt});
  return sources;
}

}  // namespace

// A method that needs a head needs one of its own kind.
Status MeansAtHand::check_head(const ActiveMethod& method) const {
  const auto& wanted = method.traits.head;
  if (!wanted || head_ == wanted) return {};
  const std::string wants = "--method " + std::string(method.name) + " needs a trained head of kind " +
                            sluice::name(*wanted) + (*wanted == HeadKind::kSpd ? ", made for as many stages" : "");
  return input_error(wants + (head_ ? std::string("; --head gives one of kind ") + sluice::name(*head_)
                                    : ": give it with --head FILE; sluice train makes one"));
}

Result<Means> MeansAtHand::find(const std::string& method, const MethodOptions& options,
                                const std::vector<SourceKind>& sources, Rule rule) const {
  Means means;
  SLUICE_TRY(means.method, make_method(method, options));
  SLUICE_TRY_STATUS(check_rule(rule, means.method));
  SLUICE_TRY_STATUS(check_head(means.method));
  if (means.method.traits.speculates) {
    SLUICE_TRY(means.sources, sources_of(means.method.traits, rule, sources, sources_));
  }
  return means;
}

}  // namespace sluice

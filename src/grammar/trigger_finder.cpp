#include "grammar/trigger_finder.h"

#include <algorithm>

namespace sluice {

namespace {

// ^ and $ are the answer's ends, not a line's.
constexpr auto kSyntax = boost::regex_constants::perl | boost::regex_constants::no_mod_m;

using Match = boost::match_results<std::string_view::const_iterator>;

// The first group that took part, or the whole.
size_t begin_of(const Match& match) {
  for (size_t group = 1; group < match.size(); ++group)
    if (match.length(static_cast<int>(group)) > 0) return static_cast<size_t>(match.position(group));
  return static_cast<size_t>(match.position());
}

}  // namespace

TriggerFinder::TriggerFinder(const std::vector<GrammarTrigger>& triggers) {
  for (const GrammarTrigger& trigger : triggers) {
    if (trigger.kind == GrammarTrigger::Kind::kWord)
      words_.push_back(trigger.text);
    else
      patterns_.push_back({boost::regex(trigger.text, kSyntax), trigger.kind == GrammarTrigger::Kind::kWholePattern});
  }
}

std::optional<size_t> TriggerFinder::find(std::string_view text, size_t fresh) const {
  size_t first = text.npos;
  for (const std::string& word : words_) {
    const size_t begun =
        std::min(text.size(), fresh + std::max<size_t>(word.size(), 1) - 1);  // may end in what is fresh
    first = std::min(first, text.find(word, text.size() - begun));
  }
  for (const Pattern& pattern : patterns_) {
    Match match;
    const bool is_there = pattern.whole ? boost::regex_match(text.begin(), text.end(), match, pattern.expression)
                                        : boost::regex_search(text.begin(), text.end(), match, pattern.expression);
    if (is_there) first = std::min(first, begin_of(match));
  }
  return first == text.npos ? std::nullopt : std::optional(first);
}

}  // namespace sluice

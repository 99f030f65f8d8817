#include "chat/special_finder.h"

#include <algorithm>
#include <map>

#include "model/utf8.h"

namespace sluice {

namespace {

uint8_t fold(char c) { return static_cast<uint8_t>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); }

}  // namespace

SpecialFinder::SpecialFinder(const std::vector<SpecialText>& specials, const Filter& filter) {
  for (const SpecialText& special : specials) {
    if (!filter(special)) continue;
    std::string folded = special.text;
    for (char& c : folded) c = static_cast<char>(fold(c));
    begins_[static_cast<uint8_t>(folded.front())] = true;
    entries_.push_back({std::move(folded), &special});
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.folded < b.folded; });
}

void SpecialFinder::visit_at(std::string_view text, size_t at,
                             const std::function<void(const SpecialText&)>& visit) const {
  if (!begins_[fold(text[at])]) return;
  auto first = entries_.begin(), last = entries_.end();  // those that agree with the text so far
  for (size_t depth = 0; first != last; ++depth) {
    for (; first != last && first->folded.size() == depth; ++first) visit(*first->special);
    if (at + depth == text.size()) return;
    const uint8_t byte = fold(text[at + depth]);
    const auto here = [depth](const Entry& entry) { return static_cast<uint8_t>(entry.folded[depth]); };
    first = std::partition_point(first, last, [&](const Entry& entry) { return here(entry) < byte; });
    last = std::partition_point(first, last, [&](const Entry& entry) { return here(entry) == byte; });
  }
}

std::vector<SpecialFinder::Match> SpecialFinder::split(std::string_view text) const {
  std::vector<Match> found;
  for (size_t at = 0; at < text.size(); ++at)
    visit_at(text, at, [&](const SpecialText& special) {
      const size_t end = at + special.text.size();
      if (text.substr(at, end - at) == special.text) found.push_back({at, end, &special});
    });
  std::stable_sort(found.begin(), found.end(),
                   [](const Match& a, const Match& b) { return a.special->text.size() > b.special->text.size(); });
  std::map<size_t, Match> taken;  // by where they begin
  for (Match match : found) {
    const auto next = taken.lower_bound(match.begin);
    const size_t from = next == taken.begin() ? 0 : std::prev(next)->second.end;
    const size_t to = next == taken.end() ? text.size() : next->second.begin;
    if (match.begin < from || match.end > to) continue;
    if (match.special->strips_before)
      while (match.begin > from && is_ascii_space(text[match.begin - 1])) --match.begin;
    if (match.special->strips_after)
      while (match.end < to && is_ascii_space(text[match.end])) ++match.end;
    taken.emplace(match.begin, match);
  }
  std::vector<Match> matches;
  for (const auto& [begin, match] : taken) matches.push_back(match);
  return matches;
}

}  // namespace sluice

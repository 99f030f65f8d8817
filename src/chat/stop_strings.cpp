#include "chat/stop_strings.h"

#include <algorithm>
#include <utility>

namespace sluice {

std::string StopStrings::push(std::string_view text) {
  if (stopped()) return {};
  held_ += text;
  const auto found = first_stop();
  std::string said = held_.substr(0, found ? found->at : held_.size() - n_held());
  held_.erase(0, found ? held_.size() : said.size());
  if (found) stop_ = *found->stop;
  return said;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

// The one that is complete first, and where it begins.
std::optional<StopStrings::Found> StopStrings::first_stop() const {
  std::optional<Found> first;
  size_t first_end = held_.size() + 1;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == held_.npos || at + stop.size() > first_end) continue;
    if (at + stop.size() < first_end || at < first->at) first = {at, &stop};
    first_end = at + stop.size();
  }
  return first;
}

// Bytes at the end that begin one of them, as many as there are.
size_t StopStrings::n_held() const {
  const std::string_view held = held_;
  size_t most = 0;
  for (const std::string& stop : stops_)
    for (size_t n = std::min(held.size(), stop.size() - 1); n > most; --n)
      if (held.ends_with(std::string_view(stop).substr(0, n))) most = n;
  return most;
}

}  // namespace sluice

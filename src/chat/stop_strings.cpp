#include "chat/stop_strings.h"

#include <algorithm>
#include <utility>

namespace sluice {

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  const auto stop = first_stop();
  stopped_ = stop.has_value();
  std::string said = held_.substr(0, stop.value_or(held_.size() - n_held()));
  held_.erase(0, stopped_ ? held_.size() : said.size());
  return said;
}

std::string StopStrings::finish() { return std::exchange(held_, {}); }

// Where the one begins that is complete first.
std::optional<size_t> StopStrings::first_stop() const {
  std::optional<size_t> first;
  size_t first_end = held_.size() + 1;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == held_.npos || at + stop.size() > first_end) continue;
    first = at + stop.size() < first_end ? at : std::min(*first, at);
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

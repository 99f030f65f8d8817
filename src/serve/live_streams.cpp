#include "serve/live_streams.h"

#include <utility>

#include "serve/live_events.h"
#include "serve/policy.h"

namespace sluice {

bool LiveStreams::add(std::shared_ptr<Exchange> exchange, const std::string& first) {
  if (all_.size() >= most_) return false;
  exchange->stream(first);
  all_.push_back({.exchange = std::move(exchange)});
  return true;
}

void LiveStreams::remove(const std::weak_ptr<Exchange>& exchange) {
  const auto gone = exchange.lock();
  std::erase_if(all_, [&](const Watching& one) { return one.exchange == gone; });
}

void LiveStreams::tell(const std::string& events) {
  for (Watching& one : all_) {
    if (one.exchange->untaken() > policy::kMostUntaken) {
      ++one.missed;
      continue;
    }
    one.exchange->stream(one.missed > 0 ? lost_event(one.missed) + events : events);
    one.missed = 0;
  }
}

void LiveStreams::end() {
  for (const Watching& one : all_) one.exchange->end_stream();
  all_.clear();
}

}  // namespace sluice

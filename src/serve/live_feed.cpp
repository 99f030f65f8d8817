#include "serve/live_feed.h"

#include <boost/asio/post.hpp>
#include <utility>

#include "serve/live_events.h"
#include "serve/policy.h"
#include "serve/status_pages.h"

namespace sluice {

LiveFeed::LiveFeed(AnswerEngine& engine, std::string first, boost::asio::thread_pool& threads)
    : engine_(engine),
      first_(std::move(first)),
      threads_(threads),
      timer_(threads.get_executor()),
      streams_(policy::kMostWatching) {}

bool LiveFeed::add(const std::shared_ptr<Exchange>& exchange) {
  {
    const std::lock_guard lock(mutex_);
    if (ended_ || !streams_.add(exchange, first_)) return false;
    if (!std::exchange(looking_, true)) look_later();
  }
  exchange->on_gone([feed = weak_from_this(), gone = std::weak_ptr(exchange)] {
    if (const auto there = feed.lock()) there->remove(gone);
  });
  return true;
}

void LiveFeed::remove(const std::weak_ptr<Exchange>& exchange) {
  const std::lock_guard lock(mutex_);
  streams_.remove(exchange);
}

void LiveFeed::end() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(ended_, true)) return;
  streams_.end();
  timer_.cancel();
  if (looking_) engine_.unwatch();
}

size_t LiveFeed::watching() const {
  const std::lock_guard lock(mutex_);
  return streams_.size();
}

// REQUIRES: mutex_ is held.
void LiveFeed::look_later() {
  timer_.expires_after(policy::kTellSteps);
  timer_.async_wait([feed = shared_from_this()](const boost::system::error_code&) { feed->look(); });
}

void LiveFeed::look() {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  if (streams_.size() == 0) {
    looking_ = false;
    return engine_.unwatch();
  }
  if (!std::exchange(asked_, true))
    engine_.watch([feed = shared_from_this()](const EngineReport& report, Steps steps) {
      boost::asio::post(feed->threads_, [feed, report, steps = std::move(steps)] { feed->tell(report, steps); });
    });
  look_later();
}

void LiveFeed::tell(const EngineReport& report, const Steps& steps) {
  std::string events;
  if (!steps.empty()) events += steps_event(steps, report.now);
  if (told_++ % policy::kTellFiguresEvery == 0)
    events += figures_event(report, report.resident_bytes + resident_bytes());
  const std::lock_guard lock(mutex_);
  asked_ = false;
  if (!ended_ && !events.empty()) streams_.tell(events);
}

}  // namespace sluice
